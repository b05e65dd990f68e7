// Trains in sync mode: push(t) to every pserver, then commit(t) fused with pull(t + 1).
//
// Thread safety: one thread.
#pragma once

#include "worker/net_step.h"
#include "worker/trainer.h"

namespace sluice {

class SyncTrainer : public Trainer {
 public:
  explicit SyncTrainer(const JobContext& context) : context_(context), step_(context) {}
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override { return context_.client->EndEpoch(epoch); }

 private:
  const JobContext& context_;
  NetStep step_;
};

}  // namespace sluice
