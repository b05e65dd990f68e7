// The network of a program: forwards each batch to the program's thread and waits for its results.
//
// A program may keep a state beside the tables (ProgramExchange::KeepState). SaveState asks for it
// once after each step, at the earliest when the program asks for the next batch: so it has all
// that the program has done with the batch.
//
// Format: a state is kStateMark and the program's bytes. Empty: none.
//
// A state that is restored reaches the program with the first turn that has a batch or ends an
// epoch, also with one that evaluates.
//
// Invariants: gradients that the program leaves alone are 0. A step that the program leaves out is
// `skipped`: its push has n_w = 0 and no key. After the program has left its loop, each step says
// that training ends (NetGradients::ends_training).
//
// Thread safety: one thread; Cancel is safe from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/net/dense_net.h"
#include "model/program/program_shape.h"
#include "python/core/program_exchange.h"
#include "python/core/slot_rows.h"
#include "python/core/turn_gradients.h"

namespace sluice {

class ProgramNet : public DenseNet {
 public:
  static constexpr size_t kMaxStateBytes = size_t{64} << 10;  // of the program
  static constexpr char kStateMark = 'p';

  // `exchange` outlives the net.
  // `newest`: the newest step that the program has made in this process, by epoch and step of the
  // epoch. Outlives the net, so that the net of a later attempt knows it. Null if a step need not
  // be made again when the job goes back (async).
  struct Newest {
    uint32_t epoch = 0;
    uint64_t steps = 0;  // 0: none
  };
  ProgramNet(ProgramShape shape, ProgramExchange* exchange, Newest* newest = nullptr)
      : shape_(std::move(shape)), exchange_(*exchange), newest_(newest), gradients_(&shape_) {}

  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override;
  std::vector<MetricSum> TakeSums() override { return std::exchange(sums_, {}); }
  // INVALID_ARGUMENT names the size of a state that is too large.
  absl::StatusOr<std::string> SaveState() const override;
  void DropStep() override;
  absl::Status RestoreState(const std::string& state) override;
  // Until it returns, and until the next step, SaveState is that of before: a job that resumes from
  // there ends the epoch again.
  absl::Status EndEpoch(uint32_t epoch, const std::function<absl::Status()>& meanwhile) override;
  void Cancel() override;
  std::string Describe() const override { return "the program's own device"; }

 private:
  // The program goes on from restored_ in this turn, if it is the first one.
  void Begin(ProgramTurn* turn);
  // INVALID_ARGUMENT when the input is of other features or tables.
  absl::Status Check(const NetInput& input) const;
  // FAILED_PRECONDITION: the program, which has left its loop, has made this step before.
  absl::Status CheckNotMade(uint32_t epoch, uint64_t step) const;

  const ProgramShape shape_;
  ProgramExchange& exchange_;
  Newest* const newest_;
  std::atomic<bool> cancelled_{false};  // a flag only; it guards no data
  SlotRows rows_;
  TurnGradients gradients_;
  std::vector<MetricSum> sums_;
  bool begun_ = false;                   // it has made a step, or ended an epoch
  bool told_ = false;                    // the program has restored_
  std::optional<std::string> restored_;  // the program's bytes; none: it begins
  // The result of SaveState after the last step, until the next one.
  mutable std::optional<std::string> saved_;
  std::optional<std::string> before_;  // saved_ before the last step
};

}  // namespace sluice
