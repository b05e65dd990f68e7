#include "worker/train/geo_trainer.h"

#include <chrono>
#include <optional>
#include <utility>

#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "common/optimizer/frozen_rule.h"
#include "worker/data/own_data.h"
#include "worker/step/geo_state_file.h"
#include "worker/step/source_state_file.h"

namespace sluice {
namespace {

// The answer of an exchange is merged after a fixed part of the next interval, so that a run does
// not depend on how fast answers come. An eighth hides the round trip behind some steps, and seven
// eighths of the steps still use merged values.
constexpr uint64_t kMergeFraction = 8;

// How often a rank without a batch looks whether a checkpoint asks for its part.
constexpr std::chrono::milliseconds kGeoLook(100);

std::vector<const TableLayout*> LayoutsOf(const JobContext& context,
                                          const std::vector<int>& tables) {
  std::vector<const TableLayout*> layouts;
  for (const int table : tables) layouts.push_back(context.client->tables()[table].get());
  return layouts;
}

}  // namespace

GeoTrainer::GeoTrainer(const JobContext& context) : context_(context), step_(context) {}

absl::Status GeoTrainer::StartOnce() {
  if (parameters_ != nullptr) return absl::OkStatus();
  const std::vector<const TableLayout*> layouts =
      LayoutsOf(context_, context_.model->dense_tables());
  const std::vector<const TableLayout*> sparse =
      LayoutsOf(context_, context_.model->sparse_tables());
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<GeoOptimizer> on_device,
                          context_.net->MakeGeoOptimizer(
                              layouts, sparse, context_.config().optimizers().clip_global_norm()));
  if (on_device != nullptr && context_.log)
    context_.log("Geo: the optimizer runs on the worker's device");
  auto parameters = std::make_unique<GeoParameters>(
      layouts, sparse, context_.config().strategy().a_sync_configs().geo_cache_rows(),
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
  SLUICE_RETURN_IF_ERROR(parameters->SetDense(view));
  // Last, so that after an error a later call starts from the beginning.
  parameters_ = std::move(parameters);
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<GeoTrainer::Found>> GeoTrainer::FindNext(BatchQueue* queue,
                                                                        bool wait) {
  BatchQueue::Item prepared = queue->TryPop();
  if (!prepared && wait) {
    SLUICE_ASSIGN_OR_RETURN(prepared, queue->Pop());
  }
  if (!prepared) return std::shared_ptr<Found>();
  std::shared_ptr<Found> found = finds_.Take();
  found->prepared = std::move(prepared);
  found->pull.reset();
  if (context_.sparse_tables() == 0) return found;
  parameters_->Find(found->prepared->keys, &found->rows);
  found->values.resize(found->rows.size());
  PullRequest pull;
  for (size_t i = 0; i < found->rows.size(); ++i) {
    // Shares the ownership of `found`: the client reads the keys until the answer is there.
    std::shared_ptr<const KeySet> missing(found, &found->rows[i].missing);
    if (missing->keys.empty()) continue;
    found->values[i].resize(missing->keys.size() * context_.sparse(i).dim());
    pull.sparse.push_back({context_.sparse(i).id(), std::move(missing), found->values[i].data()});
  }
  if (pull.sparse.empty()) return found;
  found->pull = context_.client->StartPull(std::move(pull));
  return found;
}

absl::Status GeoTrainer::Arrive(Found* found) {
  if (!found->pull.has_value()) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kPullWait);
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(*found->pull));
  found->pull.reset();
  for (size_t i = 0; i < found->rows.size(); ++i)
    SLUICE_RETURN_IF_ERROR(parameters_->Fill(i, &found->rows, found->values[i].data()));
  return absl::OkStatus();
}

absl::Status GeoTrainer::StepHere(const Found& found, uint32_t epoch, double* weight) {
  NetInput input;
  rows_.resize(found.rows.size());
  input.rows.resize(found.rows.size());
  for (size_t i = 0; i < found.rows.size(); ++i) {
    rows_[i].resize(found.rows[i].slots.size() * context_.sparse(i).dim());
    parameters_->Gather(i, found.rows, rows_[i].data());
    input.rows[i].values = rows_[i].data();
  }
  for (size_t i = 0; i < context_.model->dense_tables().size(); ++i)
    input.dense.push_back(parameters_->dense(i));
  SLUICE_ASSIGN_OR_RETURN(const std::shared_ptr<StepBuffers> gradients,
                          step_.Run(*found.prepared, epoch, std::move(input), weight));
  if (gradients == nullptr) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kCompute);
  return parameters_->Update(found.rows, NetStep::RowsOf(*gradients), NetStep::DenseOf(*gradients),
                             steps_);
}

absl::Status GeoTrainer::StepOnDevice(const Found& found, uint32_t epoch, double* weight) {
  StageTimer timer(context_.stats, Stage::kCompute);
  NetInput input;
  input.batch = &found.prepared->batch;
  input.row_index = found.prepared->row_index.data();
  input.geo = parameters_->device();
  input.rows.resize(found.rows.size());
  for (size_t i = 0; i < found.rows.size(); ++i) {
    input.rows[i].n = found.rows[i].slots.size();
    input.rows[i].slots = found.rows[i].slots.data();
  }
  NetGradients gradients;  // only the sums: the gradients stay on the device
  SLUICE_RETURN_IF_ERROR(
      context_.net->TrainStep(input, context_.config().train().seed(), epoch, &gradients));
  context_.stats->AddStep(found.prepared->batch.n, gradients.loss_sum, gradients.weight_sum);
  if (gradients.skipped) {
    context_.stats->AddSkippedStep();
    return absl::OkStatus();
  }
  *weight = gradients.weight_sum;
  return parameters_->Update(found.rows, {}, {}, steps_);
}

absl::Status GeoTrainer::TrainOne(const EpochPlan& plan, const Found& found) {
  double weight = 0;
  if (context_.sparse_tables() > 0) context_.stats->AddHotRows(parameters_->Use(found.rows));
  // A skipped step (fp16 overflow) moves nothing but counts, so that all workers send after the
  // same number of steps.
  SLUICE_RETURN_IF_ERROR(parameters_->device() != nullptr ? StepOnDevice(found, plan.epoch, &weight)
                                                          : StepHere(found, plan.epoch, &weight));
  if (step_.program_left()) return context_.end_training(0);
  ++steps_;
  ++unsent_steps_;
  unsent_weight_ += weight;
  trained_.task_id = found.prepared->batch.task_id;
  trained_.task_end = found.prepared->batch.task_end;
  trained_.epoch = plan.epoch;
  if (found.prepared->last_of_task) unsent_.push_back(found.prepared);
  return absl::OkStatus();
}

bool GeoTrainer::IsFrozenHere(size_t i) const {
  const TableLayout& table = *context_.client->tables()[context_.model->dense_tables()[i]];
  return context_.config().model().has_program() && IsFrozen(table.config().optimizer());
}

absl::Status GeoTrainer::Send() {
  StageTimer timer(context_.stats, Stage::kPushWait);
  std::shared_ptr<Sent> sent = sends_.Take();
  GeoParameters::Values& delta = sent->delta;
  GeoParameters::Values& server = sent->server;
  SLUICE_RETURN_IF_ERROR(parameters_->TakeDelta(&sent->keys, &delta));
  server.rows.resize(delta.rows.size());
  PushRequest push;
  PullRequest current;
  for (size_t i = 0; i < delta.rows.size(); ++i) {
    server.rows[i].resize(delta.rows[i].size());
    std::shared_ptr<const KeySet> keys(sent, &sent->keys[i]);
    push.sparse.push_back({context_.sparse(i).id(), keys, delta.rows[i].data()});
    current.sparse.push_back({context_.sparse(i).id(), keys, server.rows[i].data()});
  }
  const std::vector<int>& tables = context_.model->dense_tables();
  server.dense.resize(tables.size());
  for (size_t i = 0; i < tables.size(); ++i) {
    const auto table = static_cast<uint32_t>(tables[i]);
    if (IsFrozenHere(i)) {
      // It has moved nowhere, so Merge finds the values that it has.
      const float* const values = parameters_->dense(i);
      server.dense[i].assign(values, values + delta.dense[i].size());
      push.dense.push_back({table, nullptr});
      continue;
    }
    server.dense[i].resize(delta.dense[i].size());
    push.dense.push_back({table, delta.dense[i].data()});
    current.dense.push_back({table, server.dense[i].data()});
  }
  // The client reads the deltas until the pservers have acknowledged them.
  push.owner = sent;
  push.weight = unsent_weight_;
  push.position = context_.stats->Position();
  push.position.task_id = trained_.task_id;
  push.position.task_end = trained_.task_end;
  push.position.epoch = trained_.epoch;
  sent->answer = context_.client->StartExchange(std::move(push), std::move(current));
  sent->tasks = std::move(unsent_);
  sent_ = std::move(sent);
  unsent_.clear();
  unsent_steps_ = 0;
  unsent_weight_ = 0;
  return absl::OkStatus();
}

absl::Status GeoTrainer::Merge(const EpochPlan& plan) {
  if (sent_ == nullptr) return absl::OkStatus();
  StageTimer timer(context_.stats, Stage::kPushWait);
  const std::shared_ptr<Sent> sent = std::move(sent_);
  sent_ = nullptr;
  SLUICE_RETURN_IF_ERROR(context_.client->WaitPull(sent->answer));
  SLUICE_RETURN_IF_ERROR(parameters_->Merge(&sent->delta, &sent->server));
  // Only now do the pservers have every update of these tasks.
  for (const BatchQueue::Item& done : sent->tasks)
    plan.task_trained(done->batch.task_id, done->task_examples);
  sent->tasks.clear();
  return absl::OkStatus();
}

absl::Status GeoTrainer::Train(const EpochPlan& plan, BatchQueue* queue) {
  const uint64_t k_steps = KSteps(context_.config().strategy());
  const uint64_t merge_after = k_steps / kMergeFraction;
  SLUICE_RETURN_IF_ERROR(StartOnce());
  while (!context_.ends_after(0)) {
    if (*context_.cancelled) return absl::CancelledError("the job was cancelled");
    SLUICE_RETURN_IF_ERROR(not_finite_);
    if (current_ == nullptr) {
      while (!queue->AwaitItem(kGeoLook) && !*context_.cancelled && !context_.ends_after(0)) {
        if (!Asked()) continue;
        SLUICE_RETURN_IF_ERROR(Flush(plan));
        Park();
      }
      if (context_.ends_after(0)) break;
      SLUICE_ASSIGN_OR_RETURN(current_, FindNext(queue, /*wait=*/true));
    }
    if (current_ == nullptr) break;
    StepTimer step(context_.stats);
    SLUICE_RETURN_IF_ERROR(Arrive(current_.get()));
    const bool send = unsent_steps_ + 1 == k_steps;
    // A rank parks at the end of an interval, when it has nothing unsent, and merges the answer at
    // once. Its part of the checkpoint then lacks no move.
    const bool park = send && Asked();
    const bool merge =
        park || (send ? merge_after == 0 : sent_ != nullptr && unsent_steps_ + 1 == merge_after);
    // A merge makes rows stale, so the next batch is looked up after it.
    if (!merge) {
      SLUICE_ASSIGN_OR_RETURN(next_, FindNext(queue, /*wait=*/false));
    }
    step_.Announce(next_ == nullptr ? queue->Peek() : next_->prepared);
    SLUICE_RETURN_IF_ERROR(TrainOne(plan, *current_));
    if (context_.ends_after(0)) break;
    if (send) SLUICE_RETURN_IF_ERROR(Send());
    if (merge) SLUICE_RETURN_IF_ERROR(Merge(plan));
    if (park) Park();
    current_->prepared = nullptr;  // the pool keeps the rest for reuse
    current_ = std::move(next_);
  }
  // After an early end a batch may be looked up that is not trained. Its rows have their places.
  if (next_ != nullptr) SLUICE_RETURN_IF_ERROR(Arrive(next_.get()));
  current_ = next_ = nullptr;
  return Flush(plan);
}

absl::Status GeoTrainer::Flush(const EpochPlan& plan) {
  // Merge an answer still awaited before the tail is sent: only one exchange may be under way.
  SLUICE_RETURN_IF_ERROR(Merge(plan));
  if (unsent_steps_ > 0) SLUICE_RETURN_IF_ERROR(Send());
  return Merge(plan);
}

absl::StatusOr<SavedFile> GeoTrainer::SaveState(const WorkerCheckpoint& wanted) const {
  SLUICE_ASSIGN_OR_RETURN(
      const std::unique_ptr<GeoStateWriter> file,
      GeoStateWriter::Create(context_.env, wanted.directory(), context_.rank, wanted.save_id()));
  SLUICE_RETURN_IF_ERROR(file->Put(steps_));
  SLUICE_RETURN_IF_ERROR(parameters_->SaveState(file.get()));
  if (const SourceStates* const states = source_states()) {
    const std::optional<SourceState> newest = states->Before(trained_.epoch, trained_.task_end);
    if (newest) SLUICE_RETURN_IF_ERROR(PutSourceState(*newest, file.get()));
  }
  return file->Finish();
}

SourceStates* GeoTrainer::source_states() const {
  return context_.own_data == nullptr ? nullptr : context_.own_data->states();
}

absl::Status GeoTrainer::Restore(const GeoRestore& restore) {
  SLUICE_RETURN_IF_ERROR(StartOnce());
  steps_ = restore.step;
  if (!restore.file.has_value()) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(const std::unique_ptr<GeoStateReader> file,
                          GeoStateReader::Open(context_.env, restore.directory, *restore.file));
  // The file knows how far the schedule of this rank has come.
  SLUICE_RETURN_IF_ERROR(file->Get(&steps_));
  SLUICE_RETURN_IF_ERROR(parameters_->RestoreState(file.get()));
  SLUICE_ASSIGN_OR_RETURN(const bool has_source, file->HasMore());
  if (has_source && source_states() != nullptr) {
    SLUICE_ASSIGN_OR_RETURN(SourceState kept, GetSourceState(file.get()));
    source_states()->Keep(std::move(kept));
  }
  return file->Finish();
}

void GeoTrainer::AnswerCheckpoint() {
  if (!Asked()) return;
  const WorkerCheckpoint wanted = context_.cuts->wanted();
  if (!wanted.park()) return;
  const absl::StatusOr<SavedFile> file = SaveState(wanted);
  if (!file.ok()) {
    if (absl::IsOutOfRange(file.status())) not_finite_ = file.status();
    context_.cuts->RecordError(wanted.number(), Printable(file.status().message()));
    return;
  }
  uint64_t tasks = 0;
  WorkerState state;
  *state.mutable_train() = context_.stats->ReportOfTasks(&tasks);
  absl::StatusOr<std::string> net_state = context_.net->SaveState();
  // The next step ends with the same error.
  if (!net_state.ok())
    return context_.cuts->RecordError(wanted.number(), Printable(net_state.status().message()));
  state.set_net_state(*std::move(net_state));
  *state.mutable_file() = *file;
  context_.cuts->RecordParked(wanted.number(), tasks, std::move(state));
}

void GeoTrainer::Park() {
  AnswerCheckpoint();
  context_.cuts->AwaitRelease(context_.cancelled, context_.scheduler_silent);
}

}  // namespace sluice
