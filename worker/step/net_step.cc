#include "worker/step/net_step.h"

#include <cmath>
#include <utility>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

double SquaredNorm(const float* values, size_t n) {
  // In double: a float sum of millions of squares would lose the small ones.
  double sum = 0;
  for (size_t i = 0; i < n; ++i) sum += static_cast<double>(values[i]) * values[i];
  return sum;
}

}  // namespace

std::shared_ptr<StepBuffers> NetStep::TakeBuffers(const PreparedBatch& prepared) {
  std::shared_ptr<StepBuffers> buffers = pool_.Take();
  SizeRows(context_, prepared, buffers.get());
  const std::vector<int>& tables = context_.model->dense_tables();
  buffers->dense.resize(tables.size());
  const bool of_program = context_.config().model().has_program();
  for (size_t i = 0; i < tables.size(); ++i) {
    const TableLayout& table = *context_.client->tables()[tables[i]];
    // Nobody computes its gradient.
    if (of_program && IsFrozenTable(table.config())) {
      buffers->dense[i] = std::vector<float>();  // frees what its only pull has needed
    } else {
      buffers->dense[i].resize(table.elements());
    }
  }
  return buffers;
}

void NetStep::SizeRows(const JobContext& context, const PreparedBatch& prepared,
                       StepBuffers* buffers) {
  const size_t tables = context.sparse_tables();
  // A new vector, since HostArrays cannot move. It stays with the buffers, so this happens once.
  if (buffers->rows.size() != tables) buffers->rows = std::vector<HostArray>(tables);
  for (size_t i = 0; i < tables; ++i) {
    buffers->rows[i].Resize(prepared.keys[i].keys.size() * context.sparse(i).dim(),
                            context.net->host_memory());
  }
}

std::vector<const float*> NetStep::RowsOf(const StepBuffers& buffers) {
  std::vector<const float*> rows;
  for (const HostArray& values : buffers.rows) rows.push_back(values.data());
  return rows;
}

std::vector<const float*> NetStep::DenseOf(const StepBuffers& buffers) {
  std::vector<const float*> dense;
  for (const std::vector<float>& values : buffers.dense) dense.push_back(values.data());
  return dense;
}

NetInput NetStep::InputOf(const StepBuffers& buffers) const {
  NetInput input;
  input.rows.resize(buffers.rows.size());
  for (size_t i = 0; i < buffers.rows.size(); ++i) input.rows[i].values = buffers.rows[i].data();
  input.dense = context_.dense->ValuesOf(buffers);
  return input;
}

void NetStep::Announce(const std::shared_ptr<const PreparedBatch>& next) const {
  if (next == nullptr) return;
  ComingBatch coming;
  // Keeps the batch alive until the network has copied it, even if the job ends first.
  coming.batch = std::shared_ptr<const Batch>(next, &next->batch);
  coming.row_index = next->row_index.data();
  for (const KeySet& keys : next->keys) coming.num_rows.push_back(keys.keys.size());
  context_.net->Announce(std::move(coming));
}

absl::StatusOr<std::shared_ptr<StepBuffers>> NetStep::Run(const PreparedBatch& prepared,
                                                          uint32_t epoch, NetInput input,
                                                          double* weight, const Ready& ready) {
  StageTimer timer(context_.stats, Stage::kCompute);
  input.batch = &prepared.batch;
  input.row_index = prepared.row_index.data();
  input.step = context_.stats->Totals().steps();
  for (size_t i = 0; i < input.rows.size(); ++i) input.rows[i].n = prepared.keys[i].keys.size();

  std::shared_ptr<StepBuffers> buffers = TakeBuffers(prepared);
  NetGradients gradients;
  for (HostArray& values : buffers->rows) gradients.rows.push_back(values.data());
  for (std::vector<float>& values : buffers->dense)
    gradients.dense.push_back(values.empty() ? nullptr : values.data());
  // Clipping by global norm needs the whole gradient, so then nothing may leave early.
  if (ready && context_.config().optimizers().clip_global_norm() <= 0) {
    gradients.ready = [&](size_t i) { ready(buffers, gradients.weight_sum, i); };
  }
  // A shard that holds only an early part has the frame's examples but not its loss.
  early_ = position_ = PositionBefore(prepared, epoch);
  SLUICE_RETURN_IF_ERROR(
      context_.net->TrainStep(input, context_.config().train().seed(), epoch, &gradients));
  program_left_ = gradients.ends_training;
  if (program_left_) return std::shared_ptr<StepBuffers>();
  *weight = gradients.weight_sum;
  if (!gradients.logged.empty()) context_.stats->AddLogged(gradients.logged);
  context_.stats->AddStep(prepared.batch.n, gradients.loss_sum, gradients.weight_sum);
  if (gradients.skipped) {
    // Such a step has no gradients, but it is committed or sent like any other, so that all ranks
    // count the same steps.
    *weight = 0;
    context_.stats->AddSkippedStep();
    return std::shared_ptr<StepBuffers>();
  }
  position_.loss_sum += gradients.loss_sum;
  position_.weight_sum += gradients.weight_sum;
  ClipGlobalNorm(prepared, buffers.get());
  return buffers;
}

TrainPosition NetStep::PositionBefore(const PreparedBatch& prepared, uint32_t epoch) const {
  if (context_.mode != Mode::kAsync) return TrainPosition();
  TrainPosition position = context_.stats->Position();
  position.task_id = prepared.batch.task_id;
  position.task_end = prepared.batch.task_end;
  position.epoch = epoch;
  position.examples += prepared.batch.n;
  ++position.steps;
  return position;
}

void NetStep::ClipGlobalNorm(const PreparedBatch& prepared, StepBuffers* gradients) const {
  const double limit = context_.config().optimizers().clip_global_norm();
  if (limit <= 0) return;
  double squared = 0;
  for (const HostArray& values : gradients->rows)
    squared += SquaredNorm(values.data(), values.size());
  for (const std::vector<float>& values : gradients->dense)
    squared += SquaredNorm(values.data(), values.size());
  const double norm = std::sqrt(squared);
  // A NaN norm returns here too: the check before the push finds it.
  if (!(norm > limit)) return;
  const float scale = static_cast<float>(limit / norm);
  for (HostArray& values : gradients->rows) {
    for (float& value : values) value *= scale;
  }
  for (std::vector<float>& values : gradients->dense) {
    for (float& value : values) value *= scale;
  }
}

PullRequest NetStep::MakePull(const std::shared_ptr<const PreparedBatch>& prepared,
                              StepBuffers* values) const {
  PullRequest pull;
  for (size_t i = 0; i < context_.sparse_tables(); ++i) {
    pull.sparse.push_back({context_.sparse(i).id(), KeysOf(prepared, i), values->rows[i].data()});
  }
  context_.dense->AddToPull(values, &pull);
  return pull;
}

namespace {

// A push without values. It keeps the gradients and the batch alive until it is acknowledged.
PushRequest PushHead(const std::shared_ptr<const PreparedBatch>& prepared,
                     const std::shared_ptr<StepBuffers>& gradients, double weight,
                     const TrainPosition& position) {
  PushRequest push;
  push.owner =
      std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
          gradients, prepared);
  push.weight = weight;
  push.position = position;
  return push;
}

}  // namespace

PushRequest NetStep::MakePush(const std::shared_ptr<const PreparedBatch>& prepared,
                              const std::shared_ptr<StepBuffers>& gradients, double weight) const {
  if (gradients == nullptr) return MakeEmptyPush(*prepared);
  PushRequest push = PushHead(prepared, gradients, weight, position_);
  const bool any = prepared->batch.n > 0;
  for (size_t i = 0; i < context_.sparse_tables(); ++i) {
    push.sparse.push_back(
        {context_.sparse(i).id(), KeysOf(prepared, i), gradients->rows[i].data()});
  }
  context_.dense->AddToPush(any ? gradients.get() : nullptr, &push);
  return push;
}

PushRequest NetStep::MakeDensePush(const std::shared_ptr<const PreparedBatch>& prepared,
                                   const std::shared_ptr<StepBuffers>& gradients, double weight,
                                   size_t i) const {
  PushRequest push = PushHead(prepared, gradients, weight, early_);
  const uint32_t table = static_cast<uint32_t>(context_.model->dense_tables()[i]);
  push.dense.push_back({table, gradients->dense[i].data()});
  return push;
}

PushRequest NetStep::MakeEmptyPush(const PreparedBatch& prepared) const {
  PushRequest push;
  for (size_t i = 0; i < context_.sparse_tables(); ++i) {
    auto none = std::make_shared<KeySet>();
    // A list without keys for every shard: in sync each shard waits for a frame of each rank.
    none->offsets.assign(prepared.keys[i].offsets.size(), 0);
    push.sparse.push_back({context_.sparse(i).id(), std::move(none), nullptr});
  }
  context_.dense->AddToPush(nullptr, &push);
  push.position = position_;
  return push;
}

}  // namespace sluice
