// A Collective whose operations engines make.
//
// Started operations run on threads, so that they overlap with the caller's work; the others run on
// the caller's thread. With several engines, each has a thread, memory and connections of its own.
// Started operations go to them in turn, so that as many are under way at a time; every engine sees
// the same operations in the same order on all ranks. The other operations run alone, on the first
// engine. The results are those of one engine.
//
// Invariants: the first error of any engine ends the group on all of them, and is the error of
// every operation that it ends.
//
// Thread safety: as Collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "common/base/mutex.h"
#include "common/collective/collective.h"
#include "common/collective/collective_engine.h"
#include "common/collective/operation_queue.h"

namespace sluice {

class QueuedCollective : public Collective {
 public:
  // `engines`: one or more, all of the same kind.
  explicit QueuedCollective(std::vector<std::unique_ptr<CollectiveEngine>> engines);
  ~QueuedCollective() override;

  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override;
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    uint32_t self) override;
  void Leave() override;
  using Collective::WeightedMean;
  Ticket WeightedMean(uint64_t step, absl::Span<float> values, double weight, Wire wire) override;
  absl::Status Wait(Ticket ticket) override;
  absl::Status AllReduce(absl::Span<float> values, Op op) override;
  absl::Status ReduceScatter(absl::Span<float> values, Op op) override;
  absl::Status AllGather(absl::Span<float> values) override;
  absl::Status Broadcast(absl::Span<uint8_t> bytes, uint32_t root) override;
  absl::Status Barrier() override;
  void Cancel() override;
  std::string WaitingFor() const override;
  const char* name() const override { return channels_[0]->engine->name(); }

 private:
  using Operation = absl::FunctionRef<absl::Status(CollectiveEngine& engine)>;
  // An engine and the operations that wait for it.
  struct Channel {
    explicit Channel(std::unique_ptr<CollectiveEngine> its_engine);
    const std::unique_ptr<CollectiveEngine> engine;
    OperationQueue queue;  // after the engine, which its operations use
    uint64_t before = 0;   // tickets of the queue that belong to earlier groups
    uint64_t newest = 0;   // the queue's newest ticket
  };

  absl::StatusOr<std::string> MakeCard();
  absl::Status JoinEngines(const std::vector<std::string>& peers);
  // Runs an operation on the engine of channel `number`. An error ends all channels.
  absl::Status RunOn(size_t number, Operation operation);
  // Runs an operation on the first engine once all started ones are complete.
  absl::Status RunAlone(Operation operation);
  // Waits for all operations up to this ticket; 0: for none.
  absl::Status WaitForAll(Ticket ticket);
  // Ends all channels because `error` has ended channel `number`. Returns the group's first error.
  absl::Status EndAll(size_t number, const absl::Status& error);

  std::vector<std::unique_ptr<Channel>> channels_;  // constant
  bool in_group_ = false;
  uint64_t generation_ = 0;  // of the newest Listen
  uint32_t self_ = 0, ranks_ = 0;
  // The newest ticket, and that of earlier groups. Ticket t of this group belongs to channel
  // (t - before_ - 1) % channels. Counting begins anew with each group, because an error may have
  // ended the one before when the ranks had started different numbers of operations.
  Ticket started_ = 0, before_ = 0;
  Mutex mutex_;
  absl::Status first_error_ ABSL_GUARDED_BY(mutex_);  // of this group
};

}  // namespace sluice
