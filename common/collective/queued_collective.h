// A Collective whose operations an engine makes, one after the other.
//
// Started operations run on a thread, so that they overlap with the caller's work; the others run
// on the caller's thread. A later version may have several engines here, each with memory and
// connections of its own, and give started operations to them in turn.
//
// Thread safety: as Collective.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "common/collective/collective.h"
#include "common/collective/collective_engine.h"
#include "common/collective/operation_queue.h"

namespace sluice {

class QueuedCollective : public Collective {
 public:
  explicit QueuedCollective(std::unique_ptr<CollectiveEngine> engine);
  ~QueuedCollective() override;

  absl::StatusOr<std::string> Listen(uint64_t generation, uint32_t self, uint32_t ranks) override;
  absl::Status Join(uint64_t generation, const std::vector<std::string>& peers,
                    uint32_t self) override;
  void Leave() override;
  Ticket WeightedMean(uint64_t step, absl::Span<float> values, double weight) override;
  absl::Status Wait(Ticket ticket) override;
  absl::Status AllReduce(absl::Span<float> values, Op op) override;
  absl::Status ReduceScatter(absl::Span<float> values, Op op) override;
  absl::Status AllGather(absl::Span<float> values) override;
  absl::Status Broadcast(absl::Span<uint8_t> bytes, uint32_t root) override;
  absl::Status Barrier() override;
  void Cancel() override { engine_->Cancel(); }
  std::string WaitingFor() const override { return engine_->WaitingFor(); }
  const char* name() const override { return engine_->name(); }

 private:
  const std::unique_ptr<CollectiveEngine> engine_;
  OperationQueue queue_;  // after engine_: its operations use it
  bool in_group_ = false;
  uint64_t generation_ = 0;  // of the newest Listen
  uint32_t self_ = 0, ranks_ = 0;
};

}  // namespace sluice
