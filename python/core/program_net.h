// The network of a program: forwards each batch to the program's thread and waits for its results.
//
// Invariants: gradients that the program leaves alone are 0. A step that the program leaves out is
// `skipped`: its push has n_w = 0 and no key.
//
// Thread safety: one thread; Cancel is safe from any thread.
#pragma once

#include <atomic>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "model/net/dense_net.h"
#include "model/program/program_shape.h"
#include "python/core/program_exchange.h"
#include "python/core/slot_rows.h"

namespace sluice {

class ProgramNet : public DenseNet {
 public:
  // `exchange` outlives the net.
  ProgramNet(ProgramShape shape, ProgramExchange* exchange)
      : shape_(std::move(shape)), exchange_(*exchange) {}

  absl::Status TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                         NetGradients* gradients) override;
  absl::Status Forward(const NetInput& input, float* logits) override;
  void Cancel() override;
  std::string Describe() const override { return "the program's own device"; }

 private:
  // INVALID_ARGUMENT when the input is of other features or tables.
  absl::Status Check(const NetInput& input) const;

  const ProgramShape shape_;
  ProgramExchange& exchange_;
  std::atomic<bool> cancelled_{false};  // a flag only; it guards no data
  SlotRows rows_;
};

}  // namespace sluice
