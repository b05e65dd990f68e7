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

GeoTrainer::GeoTrainer(const JobContext& context) : context_(context), step_(context) {}

absl::Status GeoTrainer::StartOnce() {
  if (store_ != nullptr) return absl::OkStatus();
  const std::vector<const TableLayout*> layouts = DenseLayouts(context_);
  SLUICE_ASSIGN_OR_RETURN(
      std::unique_ptr<GeoValues> on_device,
      context_.net->MakeGeoValues(layouts, context_.sparse(),
                                  context_.config().optimizers().clip_global_norm()));
  if (on_device != nullptr && context_.log)
    context_.log("geo: the optimizer runs on the worker's device");
  auto store = std::make_unique<GeoStore>(
      layouts, context_.sparse(), context_.config().strategy().a_sync_configs().geo_cache_rows(),
      std::move(on_device));
  StageTimer timer(context_.stats, Stage::kPullWait);
  PullRequest pull;
  std::vector<std::vector<float>> values;
  std::vector<const float*> view;
  for (const TableLayout* layout : layouts) {
    values.emplace_back(layout->elements());
    pull.dense.push_back({layout->id(), values.back().data()});
    view.push_back(values.back().data());
  }
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(context_.client->StartPull(std::move(pull))));
  SLUICE_RETURN_IF_ERROR(store->SetDense(view));
  store_ = std::move(store);
  return absl::OkStatus();
}

absl::Status GeoTrainer::PullMissing(const KeySet& keys) {
  store_->Find(keys, &found_);
  if (found_.missing.keys.empty()) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kPullWait);
  missing_values_.resize(found_.missing.keys.size() * context_.sparse()->dim());
  PullRequest pull;
  auto shared = std::make_shared<const KeySet>(found_.missing);
  pull.sparse.push_back({context_.sparse()->id(), shared, missing_values_.data()});
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(context_.client->StartPull(std::move(pull))));
  return store_->Fill(&found_, missing_values_.data());
}

absl::Status GeoTrainer::StepHere(const PreparedBatch& prepared, uint32_t epoch, double* weight) {
  if (context_.sparse() != nullptr) {
    rows_.resize(prepared.keys.keys.size() * context_.sparse()->dim());
    store_->Gather(found_, rows_.data());
  }
  NetInput input;
  input.rows = rows_.data();
  for (size_t i = 0; i < context_.model->dense_tables().size(); ++i)
    input.dense.push_back(store_->dense(i));
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<StepBuffers> gradients,
                          step_.Run(prepared, epoch, std::move(input), weight));
  if (gradients == nullptr) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kCompute);
  return store_->Update(found_, gradients->rows.data(), NetStep::DenseOf(*gradients), steps_);
}

absl::Status GeoTrainer::StepOnDevice(const PreparedBatch& prepared, uint32_t epoch,
                                      double* weight) {
  StageTimer timer(context_.stats, Stage::kCompute);
  NetInput input;
  input.batch = &prepared.batch;
  input.row_index = prepared.row_index.data();
  input.num_rows = found_.slots.size();
  input.geo = store_->device();
  input.slots = found_.slots.data();
  NetGradients gradients;  // stay on the device
  SLUICE_RETURN_IF_ERROR(
      context_.net->TrainStep(input, context_.config().train().seed(), epoch, &gradients));
  context_.stats->AddStep(prepared.batch.n, gradients.loss_sum, gradients.weight_sum);
  if (gradients.skipped) {
    context_.stats->AddSkippedStep();
    return absl::OkStatus();
  }
  *weight = gradients.weight_sum;
  return store_->Update(found_, nullptr, {}, steps_);
}

absl::Status GeoTrainer::TrainOne(const EpochPlan& plan, const BatchQueue::Item& prepared) {
  if (context_.sparse() != nullptr) SLUICE_RETURN_IF_ERROR(PullMissing(prepared->keys));
  double weight = 0;
  // A skipped step (fp16 overflow) moves nothing, but counts: k_steps is of all workers alike.
  SLUICE_RETURN_IF_ERROR(store_->device() != nullptr ? StepOnDevice(*prepared, plan.epoch, &weight)
                                                     : StepHere(*prepared, plan.epoch, &weight));
  ++steps_;
  ++unsent_steps_;
  unsent_weight_ += weight;
  if (prepared->last_of_task) unsent_.push_back(prepared);
  return absl::OkStatus();
}

absl::Status GeoTrainer::Exchange(const EpochPlan& plan) {
  StageTimer timer(context_.stats, Stage::kPushWait);
  auto delta = std::make_shared<Delta>();
  SLUICE_RETURN_IF_ERROR(store_->TakeDelta(&delta->keys, &delta->rows, &delta->dense));
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
  SLUICE_RETURN_IF_ERROR(store_->Merge(&delta->rows, &server.rows, &delta->dense, &server.dense));
  for (const BatchQueue::Item& done : unsent_)
    plan.task_trained(done->batch.task_id, done->task_examples);
  unsent_.clear();
  unsent_steps_ = 0;
  unsent_weight_ = 0;
  return absl::OkStatus();
}

absl::Status GeoTrainer::Train(const EpochPlan& plan, BatchQueue* queue) {
  const uint64_t k_steps = KSteps(context_.config().strategy());
  SLUICE_RETURN_IF_ERROR(StartOnce());
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
