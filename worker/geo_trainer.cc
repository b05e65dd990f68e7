#include "worker/geo_trainer.h"

#include "common/base/status_macros.h"

namespace sluice {
namespace {

std::vector<const TableLayout*> DenseLayouts(const JobContext& context) {
  std::vector<const TableLayout*> layouts;
  for (const int table : context.model->dense_tables())
    layouts.push_back(context.client->tables()[table].get());
  return layouts;
}

}  // namespace

GeoTrainer::GeoTrainer(const JobContext& context)
    : context_(context),
      step_(context),
      store_(DenseLayouts(context), context.sparse(),
             context.config().strategy().a_sync_configs().geo_cache_rows()) {}

absl::Status GeoTrainer::PullDenseOnce() {
  if (dense_pulled_) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kPullWait);
  PullRequest pull;
  const std::vector<int>& tables = context_.model->dense_tables();
  for (size_t i = 0; i < tables.size(); ++i)
    pull.dense.push_back({static_cast<uint32_t>(tables[i]), store_.dense(i)});
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(context_.client->StartPull(std::move(pull))));
  store_.SetDenseBase();
  dense_pulled_ = true;
  return absl::OkStatus();
}

absl::Status GeoTrainer::PullMissing(const KeySet& keys) {
  store_.Find(keys, &found_);
  if (found_.missing.keys.empty()) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kPullWait);
  missing_values_.resize(found_.missing.keys.size() * context_.sparse()->dim());
  PullRequest pull;
  auto shared = std::make_shared<const KeySet>(found_.missing);
  pull.sparse.push_back({context_.sparse()->id(), shared, missing_values_.data()});
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(context_.client->StartPull(std::move(pull))));
  store_.Fill(&found_, missing_values_.data());
  return absl::OkStatus();
}

void GeoTrainer::UpdateLocally(size_t dense_tables, const StepBuffers& gradients) {
  StageTimer timer(context_.stats, Stage::kCompute);
  if (context_.sparse() != nullptr) store_.UpdateRows(found_, gradients.rows.data(), steps_);
  for (size_t i = 0; i < dense_tables; ++i)
    store_.UpdateDense(i, gradients.dense[i].data(), steps_);
}

absl::Status GeoTrainer::TrainOne(const EpochPlan& plan, const BatchQueue::Item& prepared) {
  if (context_.sparse() != nullptr) {
    SLUICE_RETURN_IF_ERROR(PullMissing(prepared->keys));
    rows_.resize(prepared->keys.keys.size() * context_.sparse()->dim());
    store_.Gather(found_, rows_.data());
  }
  NetInput input;
  input.rows = rows_.data();
  const size_t dense_tables = context_.model->dense_tables().size();
  for (size_t i = 0; i < dense_tables; ++i) input.dense.push_back(store_.dense(i));
  double weight = 0;
  SLUICE_ASSIGN_OR_RETURN(std::shared_ptr<StepBuffers> gradients,
                          step_.Run(*prepared, plan.epoch, std::move(input), &weight));
  // A skipped step (fp16 overflow) moves nothing, but counts: k_steps is of all workers alike.
  if (gradients != nullptr) UpdateLocally(dense_tables, *gradients);
  ++steps_;
  ++unsent_steps_;
  unsent_weight_ += weight;
  if (prepared->last_of_task) unsent_.push_back(prepared);
  return absl::OkStatus();
}

absl::Status GeoTrainer::Exchange(const EpochPlan& plan) {
  StageTimer timer(context_.stats, Stage::kPushWait);
  auto delta = std::make_shared<Delta>();
  store_.TakeDelta(&delta->keys, &delta->rows, &delta->dense);
  Delta server;
  server.rows.resize(delta->rows.size());
  std::shared_ptr<const KeySet> keys(delta, &delta->keys);
  PushRequest push;
  PullRequest current;
  if (context_.sparse() != nullptr) {
    push.sparse.push_back({context_.sparse()->id(), keys, delta->rows.data()});
    current.sparse.push_back({context_.sparse()->id(), keys, server.rows.data()});
  }
  const std::vector<int>& tables = context_.model->dense_tables();
  server.dense.resize(tables.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    server.dense[i].resize(delta->dense[i].size());
    push.dense.push_back({static_cast<uint32_t>(tables[i]), delta->dense[i].data()});
    current.dense.push_back({static_cast<uint32_t>(tables[i]), server.dense[i].data()});
  }
  push.owner = delta;
  push.weight = unsent_weight_;
  if (!unsent_.empty()) {
    push.task_id = unsent_.back()->batch.task_id;
    push.task_end = unsent_.back()->batch.task_end;
  }
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(
      context_.client->StartExchange(std::move(push), std::move(current))));
  store_.Merge(delta->rows, server.rows, delta->dense, server.dense);
  for (const BatchQueue::Item& done : unsent_)
    plan.task_trained(done->batch.task_id, done->task_examples);
  unsent_.clear();
  unsent_steps_ = 0;
  unsent_weight_ = 0;
  return absl::OkStatus();
}

absl::Status GeoTrainer::Train(const EpochPlan& plan, BatchQueue* queue) {
  const uint64_t k_steps = KSteps(context_.config().strategy());
  SLUICE_RETURN_IF_ERROR(PullDenseOnce());
  for (;;) {
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    SLUICE_ASSIGN_OR_RETURN(BatchQueue::Item prepared, queue->Pop());
    if (!prepared) break;
    StepTimer step(context_.stats);
    SLUICE_RETURN_IF_ERROR(TrainOne(plan, prepared));
    if (unsent_steps_ == k_steps) SLUICE_RETURN_IF_ERROR(Exchange(plan));
  }
  return unsent_steps_ > 0 ? Exchange(plan) : absl::OkStatus();
}

}  // namespace sluice
