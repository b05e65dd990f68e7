// Trains in async mode, where the pservers apply every push when it arrives.
//
// `pipeline_depth` pulls are under way at a time. A large layer's weight gradient leaves when its
// product ends, before the rest of its push. With caches of hot rows, a pull asks only for the
// rows that they lack.
//
// Thread safety: one thread.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "worker/step/hot_row_cache.h"
#include "worker/step/net_step.h"
#include "worker/train/trainer.h"

namespace sluice {

class AsyncTrainer : public Trainer {
 public:
  explicit AsyncTrainer(const JobContext& context) : context_(context), step_(context) {}
  absl::Status Train(const EpochPlan& plan, BatchQueue* queue) override;
  absl::Status EndEpoch(uint32_t epoch) override;
  void AnswerCheckpoint() override;

 private:
  struct Pulled {
    BatchQueue::Item prepared;
    std::shared_ptr<StepBuffers> values;
    // By sparse table; null: all its rows are pulled. Empty without caches of hot rows.
    std::vector<std::shared_ptr<const HotRowIndex::Rows>> hot;
    ParameterClient::Ticket ticket = 0;
  };
  absl::Status MakeHotRows();
  // The result has no ticket yet; *pull fills its values.
  Pulled MakePull(BatchQueue::Item prepared, PullRequest* pull);
  Pulled StartPull(BatchQueue::Item prepared);
  absl::Status TrainOne(const EpochPlan& plan, const Pulled& pulled, BatchQueue* queue);
  // Waits until at most `in_flight` pushes are unacknowledged. Reports tasks as trained once their
  // last batch is acknowledged.
  absl::Status WaitPushes(const EpochPlan& plan, size_t in_flight);

  const JobContext& context_;
  NetStep step_;
  bool made_hot_rows_ = false;
  // By sparse table; empty: the job has no caches of hot rows.
  std::vector<std::unique_ptr<HotRowCache>> hot_rows_;
  std::deque<Pulled> pulled_;            // in the order of their steps
  std::deque<BatchQueue::Item> pushed_;  // not known to be acknowledged
  // When the program gives the data: the batches of the epoch whose pushes are acknowledged.
  struct {
    uint32_t epoch = 0;
    uint64_t batches = 0;
  } acknowledged_;
};

}  // namespace sluice
