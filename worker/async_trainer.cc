#include "worker/async_trainer.h"

#include <vector>

#include "common/base/mutex.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// Gradients of fewer bytes go with the rest of their push: a request of their own would cost more
// than it hides.
constexpr size_t kEarlyBytes = 256 << 10;

// Of one step; threads of the net add to it.
struct EarlyPushes {
  Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
  std::vector<size_t> tables ABSL_GUARDED_BY(mutex);  // by Model::dense_tables()
};

}  // namespace

AsyncTrainer::Pulled AsyncTrainer::StartPull(BatchQueue::Item prepared) {
  std::shared_ptr<StepBuffers> values = step_.TakeBuffers(*prepared);
  const ParameterClient::Ticket ticket =
      context_.client->StartPull(step_.MakePull(prepared, values.get()));
  return {std::move(prepared), std::move(values), ticket};
}

absl::Status AsyncTrainer::WaitPushes(const EpochPlan& plan, size_t in_flight) {
  StageTimer timer(context_.stats, Stage::kPushWait);
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPushes(static_cast<int>(in_flight)));
  for (; pushed_.size() > in_flight; pushed_.pop_front()) {
    const PreparedBatch& done = *pushed_.front();
    if (done.last_of_task) plan.task_trained(done.batch.task_id, done.task_examples);
  }
  return absl::OkStatus();
}

absl::Status AsyncTrainer::TrainOne(const EpochPlan& plan, const Pulled& pulled,
                                    BatchQueue* queue) {
  {
    StageTimer timer(context_.stats, Stage::kPullWait);
    SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(pulled.ticket));
  }
  double weight = 0;
  EarlyPushes early;
  auto ready = [&](const std::shared_ptr<StepBuffers>& gradients, double n_w, size_t i) {
    if (gradients->dense[i].size() * sizeof(float) < kEarlyBytes) return;
    const absl::Status status =
        context_.client->PushEarly(step_.MakeDensePush(pulled.prepared, gradients, n_w, i));
    MutexLock lock(&early.mutex);
    early.status.Update(status);
    early.tables.push_back(i);
  };
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<StepBuffers> gradients,
                          step_.Run(*pulled.prepared, plan.epoch, pulled.values->rows.data(),
                                    NetStep::DenseOf(*pulled.values), &weight, ready));
  PushRequest push = step_.MakePush(pulled.prepared, gradients, weight);
  {
    MutexLock lock(&early.mutex);
    SLUICE_RETURN_IF_ERROR(early.status);
    for (size_t i : early.tables) push.dense[i].values = nullptr;
  }
  pushed_.push_back(pulled.prepared);
  // The next batch, when it is ready, is pulled in the same exchange.
  BatchQueue::Item next = queue->TryPop();
  if (!next) return context_.client->StartPush(std::move(push));
  Pulled fused{next, step_.TakeBuffers(*next), 0};
  PullRequest pull = step_.MakePull(next, fused.values.get());
  SLUICE_RETURN_IF_ERROR(context_.client->StartPush(std::move(push), &pull, &fused.ticket));
  pulled_.push_back(std::move(fused));
  return absl::OkStatus();
}

absl::Status AsyncTrainer::Train(const EpochPlan& plan, BatchQueue* queue) {
  const size_t depth = context_.config().train().pipeline_depth();
  for (;;) {
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    while (pulled_.size() < depth) {
      BatchQueue::Item prepared = queue->TryPop();
      if (!prepared) break;
      pulled_.push_back(StartPull(std::move(prepared)));
    }
    if (pulled_.empty()) {
      SLUICE_ASSIGN_OR_RETURN(BatchQueue::Item prepared, queue->Pop());
      if (!prepared) break;
      pulled_.push_back(StartPull(std::move(prepared)));
    }
    StepTimer step(context_.stats);
    const Pulled pulled = std::move(pulled_.front());
    pulled_.pop_front();
    SLUICE_RETURN_IF_ERROR(TrainOne(plan, pulled, queue));
    SLUICE_RETURN_IF_ERROR(WaitPushes(plan, depth));
  }
  return WaitPushes(plan, 0);
}

}  // namespace sluice
