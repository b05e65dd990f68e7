#include "worker/train/async_trainer.h"

#include <chrono>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "worker/step/source_state_file.h"

namespace sluice {
namespace {

// Smaller gradients go with the rest of their push: a separate request would cost more than it
// hides.
constexpr size_t kEarlyBytes = 256 << 10;

// How often a rank without a batch looks whether a checkpoint asks for its part.
constexpr std::chrono::milliseconds kAsyncLook(100);

// The early pushes of one step; threads of the net add to it.
struct EarlyPushes {
  Mutex mutex;
  absl::Status status ABSL_GUARDED_BY(mutex);
  std::vector<size_t> tables ABSL_GUARDED_BY(mutex);  // by Model::dense_tables()
};

}  // namespace

absl::Status AsyncTrainer::MakeHotRows() {
  if (made_hot_rows_) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(hot_rows_, HotRowCache::CreateAll(context_));
  made_hot_rows_ = true;
  return absl::OkStatus();
}

AsyncTrainer::Pulled AsyncTrainer::MakePull(BatchQueue::Item prepared, PullRequest* pull) {
  Pulled pulled;
  pulled.values = step_.TakeBuffers(*prepared);
  *pull = step_.MakePull(prepared, pulled.values.get());
  // With caches only the missing rows are pulled. A table without room for the batch's rows (null)
  // is pulled whole.
  for (size_t i = 0; i < hot_rows_.size(); ++i) {
    pulled.hot.push_back(hot_rows_[i]->Find(prepared->keys[i]));
    const auto& hot = pulled.hot.back();
    if (hot != nullptr) pull->sparse[i].keys = {hot, &hot->missing};
  }
  pulled.prepared = std::move(prepared);
  return pulled;
}

AsyncTrainer::Pulled AsyncTrainer::StartPull(BatchQueue::Item prepared) {
  PullRequest pull;
  Pulled pulled = MakePull(std::move(prepared), &pull);
  pulled.ticket = context_.client->StartPull(std::move(pull));
  return pulled;
}

absl::Status AsyncTrainer::WaitPushes(const EpochPlan& plan, size_t in_flight) {
  StageTimer timer(context_.stats, Stage::kPushWait);
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPushes(static_cast<int>(in_flight)));
  // Pushes are acknowledged in their order, so the oldest ones are done.
  for (; pushed_.size() > in_flight; pushed_.pop_front()) {
    const PreparedBatch& done = *pushed_.front();
    acknowledged_ = {plan.epoch, done.batch.task_end};
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
  NetInput input = step_.InputOf(*pulled.values);
  for (size_t i = 0; i < hot_rows_.size(); ++i)
    SLUICE_RETURN_IF_ERROR(hot_rows_[i]->Use(pulled.hot[i].get(), &input.rows[i]));
  double weight = 0;
  // `ready` is called only inside Run, so it may refer to these.
  EarlyPushes early;
  auto ready = [&](const std::shared_ptr<StepBuffers>& gradients, double n_w, size_t i) {
    if (gradients->dense[i].size() * sizeof(float) < kEarlyBytes) return;
    const absl::Status status =
        context_.client->PushEarly(step_.MakeDensePush(pulled.prepared, gradients, n_w, i));
    MutexLock lock(&early.mutex);
    early.status.Update(status);
    early.tables.push_back(i);
  };
  SLUICE_ASSIGN_OR_RETURN(
      std::shared_ptr<StepBuffers> gradients,
      step_.Run(*pulled.prepared, plan.epoch, std::move(input), &weight, ready));
  if (step_.program_left()) return context_.end_training(0);
  PushRequest push = step_.MakePush(pulled.prepared, gradients, weight);
  {
    MutexLock lock(&early.mutex);
    SLUICE_RETURN_IF_ERROR(early.status);
    // These have left already; the rest of the push must not send them again.
    for (size_t i : early.tables) push.dense[i].values = nullptr;
  }
  pushed_.push_back(pulled.prepared);
  // If the next batch is ready, its pull leaves in the same exchange.
  BatchQueue::Item next = queue->TryPop();
  if (!next) return context_.client->StartPush(std::move(push));
  if (context_.config().recovery().replicas() > 0) {
    // An answer that acknowledges waits for the follower; values need not. The pservers read them
    // after the push as well, since both take the same streams in this order.
    SLUICE_RETURN_IF_ERROR(context_.client->StartPush(std::move(push)));
    pulled_.push_back(StartPull(std::move(next)));
    return absl::OkStatus();
  }
  PullRequest pull;
  Pulled fused = MakePull(std::move(next), &pull);
  SLUICE_RETURN_IF_ERROR(context_.client->StartPush(std::move(push), &pull, &fused.ticket));
  pulled_.push_back(std::move(fused));
  return absl::OkStatus();
}

absl::Status AsyncTrainer::Train(const EpochPlan& plan, BatchQueue* queue) {
  SLUICE_RETURN_IF_ERROR(MakeHotRows());
  const size_t depth = context_.config().train().pipeline_depth();
  while (!context_.ends_after(0)) {
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    AnswerCheckpoint();
    // Values that were pulled age until their step, so no more pulls are under way than the job
    // allows.
    while (pulled_.size() < depth) {
      BatchQueue::Item prepared = queue->TryPop();
      if (!prepared) break;
      pulled_.push_back(StartPull(std::move(prepared)));
    }
    if (pulled_.empty()) {
      while (!queue->AwaitItem(kAsyncLook) && !*context_.cancelled && !context_.ends_after(0))
        AnswerCheckpoint();
      if (context_.ends_after(0)) break;
      SLUICE_ASSIGN_OR_RETURN(BatchQueue::Item prepared, queue->Pop());
      if (!prepared) break;
      pulled_.push_back(StartPull(std::move(prepared)));
    }
    StepTimer step(context_.stats);
    const Pulled pulled = std::move(pulled_.front());
    pulled_.pop_front();
    step_.Announce(pulled_.empty() ? queue->Peek() : pulled_.front().prepared);
    SLUICE_RETURN_IF_ERROR(TrainOne(plan, pulled, queue));
    SLUICE_RETURN_IF_ERROR(WaitPushes(plan, depth));
  }
  // After an early end, batches are left.
  for (const Pulled& pulled : pulled_) context_.client->DropPull(pulled.ticket);
  pulled_.clear();
  return WaitPushes(plan, 0);
}

void AsyncTrainer::AnswerCheckpoint() {
  if (context_.cuts == nullptr || context_.cuts->asked() == 0) return;
  const WorkerCheckpoint wanted = context_.cuts->wanted();
  const uint64_t number = wanted.number();
  // The part is as of the tasks that the scheduler has acknowledged: a job that resumes leases all
  // others again.
  uint64_t tasks = 0;
  WorkerState state;
  *state.mutable_train() = context_.stats->ReportOfTasks(&tasks);
  absl::StatusOr<std::string> net_state = context_.net->SaveState();
  // The next step ends with the same error.
  if (!net_state.ok())
    return context_.cuts->RecordError(number, Printable(net_state.status().message()));
  state.set_net_state(*std::move(net_state));
  if (!wanted.directory().empty()) {
    // The pservers cut later, so all of them hold at least what they have acknowledged.
    const absl::Status added = AddSourceState(context_, acknowledged_.epoch, acknowledged_.batches,
                                              wanted.directory(), wanted.save_id(), &state);
    if (!added.ok()) return context_.cuts->RecordError(number, Printable(added.message()));
  }
  context_.cuts->Record(number, tasks, std::move(state));
}

absl::Status AsyncTrainer::EndEpoch(uint32_t epoch) {
  for (const auto& hot_rows : hot_rows_) hot_rows->EndEpoch();
  return context_.client->EndEpoch(epoch);
}

}  // namespace sluice
