// Async mode: every push is applied when it arrives; `pipeline_depth` pulls are under way. A large
// layer's weight gradient leaves when its product ends, before the rest of its push.
//
// Thread safety: one thread.
#pragma once

#include <deque>

#include "worker/net_step.h"
#include "worker/trainer.h"

namespace sluice {

class AsyncTrainer : public Trainer {
 public:
  explicit AsyncTrainer(const JobContext& context) : context_(context), step_(context) {}
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override { return context_.client->EndEpoch(epoch); }

 private:
  struct Pulled {
    BatchQueue::Item prepared;
    std::shared_ptr<StepBuffers> values;
    ParameterClient::Ticket ticket;
  };
  Pulled StartPull(BatchQueue::Item prepared);
  absl::Status TrainOne(const EpochPlan& plan, const Pulled& pulled, BatchQueue* queue);
  // Until at most `in_flight` pushes are not acknowledged; tasks whose last batch is, are trained.
  absl::Status WaitPushes(const EpochPlan& plan, size_t in_flight);

  const JobContext& context_;
  NetStep step_;
  std::deque<Pulled> pulled_;            // in the order of their steps
  std::deque<BatchQueue::Item> pushed_;  // not known to be acknowledged
};

}  // namespace sluice
