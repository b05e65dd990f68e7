#include "model/net/net_in_passes.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "model/net/parallel.h"

namespace sluice {
namespace {

// The network may sum in any order, so passes need not end where sums are cut.
constexpr size_t kAnywhere = 0;
constexpr size_t kAddedAtATime = 1 << 15;  // elements that one thread adds at a time
constexpr uint32_t kNone = UINT32_MAX;

std::vector<size_t> NumRows(const NetInput& input) {
  std::vector<size_t> n;
  for (const RowsInput& rows : input.rows) n.push_back(rows.n);
  return n;
}

}  // namespace

NetInPasses::NetInPasses(std::unique_ptr<DenseNet> net, TableSizes sizes, const NetOptions& options)
    : net_(std::move(net)),
      sizes_(std::move(sizes)),
      pass_examples_(options.pass_examples),
      threads_(std::max(options.threads, 1)),
      place_(sizes_.row_dims.size()),
      rows_(sizes_.row_dims.size()),
      row_gradients_(sizes_.row_dims.size()),
      sums_(sizes_.dense.size()),
      row_sums_(sizes_.row_dims.size()) {}

std::shared_ptr<NetInPasses::Part> NetInPasses::Copy(const Batch& batch, const uint32_t* row_index,
                                                     const std::vector<size_t>& num_rows,
                                                     const StepPass& pass) {
  auto part = std::make_shared<Part>();
  part->step = &batch;
  part->source.row_index = row_index;
  part->source.num_rows = num_rows;
  Batch& to = part->batch;
  to.Reset(batch.num_numeric, batch.num_slots);
  to.n = pass.n();
  const auto copy = [&](const auto& from, size_t width, auto* values) {
    if (from.size() < pass.end * width) return;  // example ids, without dropout
    values->assign(from.begin() + pass.begin * width, from.begin() + pass.end * width);
  };
  copy(batch.label, 1, &to.label);
  copy(batch.weight, 1, &to.weight);
  copy(batch.numeric, batch.num_numeric, &to.numeric);
  copy(batch.example_id, 1, &to.example_id);
  to.first_position = batch.first_position + pass.begin;
  to.chunk = batch.chunk;
  const uint32_t* const offsets = batch.key_offsets.data() + pass.begin * batch.num_slots;
  const uint32_t first_key = offsets[0], end_key = offsets[pass.n() * batch.num_slots];
  to.key_offsets.resize(pass.n() * batch.num_slots + 1);
  // Offsets of a pass begin at 0 again, as those of every batch.
  for (size_t i = 0; i < to.key_offsets.size(); ++i) to.key_offsets[i] = offsets[i] - first_key;
  to.keys.assign(batch.keys.begin() + first_key, batch.keys.begin() + end_key);
  if (!batch.key_weights.empty()) {
    to.key_weights.assign(batch.key_weights.begin() + first_key,
                          batch.key_weights.begin() + end_key);
  }
  part->rows.resize(sizes_.row_dims.size());
  if (to.keys.empty() || sizes_.row_dims.empty()) return part;
  NumberRows(row_index + first_key, part.get());
  return part;
}

// In the order of their first use, so that the pass copies and computes no others.
void NetInPasses::NumberRows(const uint32_t* row_index, Part* part) {
  const Batch& batch = part->batch;
  for (size_t t = 0; t < place_.size(); ++t) place_[t].assign(part->source.num_rows[t], kNone);
  part->row_index.resize(batch.keys.size());
  for (size_t cell = 0; cell < batch.n * batch.num_slots; cell += batch.num_slots) {
    const uint32_t* const offsets = batch.key_offsets.data() + cell;
    for (size_t s = 0; s < batch.num_slots; ++s) {
      const uint32_t table = sizes_.slot_tables[s];
      std::vector<uint32_t>& rows = part->rows[table];
      for (uint32_t k = offsets[s]; k < offsets[s + 1]; ++k) {
        uint32_t& place = place_[table][row_index[k]];
        if (place == kNone) {
          place = static_cast<uint32_t>(rows.size());
          rows.push_back(row_index[k]);
        }
        part->row_index[k] = place;
      }
    }
  }
}

std::shared_ptr<NetInPasses::Part> NetInPasses::CopyAnnounced() {
  const ComingBatch next = std::exchange(announced_, {});
  // A batch of one pass is given to the network as it is.
  if (next.batch == nullptr || next.batch->n <= pass_examples_) return nullptr;
  // An announcement is a hint. Check refuses the step itself, with a message.
  const bool keys = !sizes_.row_dims.empty() && !next.batch->keys.empty();
  if (keys && next.row_index == nullptr) return nullptr;
  if (!HasSlots(*next.batch) || next.num_rows.size() != sizes_.row_dims.size()) return nullptr;
  const StepPass first = CutIntoPasses(*next.batch, pass_examples_, kAnywhere).front();
  std::shared_ptr<Part> part = Copy(*next.batch, next.row_index, next.num_rows, first);
  part->source = next;
  return part;
}

std::shared_ptr<NetInPasses::Part> NetInPasses::First(const NetInput& input, const StepPass& pass) {
  std::shared_ptr<Part> ahead = std::exchange(ahead_, nullptr);
  // The caller may train another batch than it has announced. Then the part is useless.
  const bool same = ahead != nullptr && ahead->step == input.batch &&
                    ahead->source.row_index == input.row_index &&
                    ahead->source.num_rows == NumRows(input);
  return same ? ahead : Copy(*input.batch, input.row_index, NumRows(input), pass);
}

void NetInPasses::Add(const float* values, double weight, bool first, size_t n,
                      double* sums) const {
  ParallelFor(threads_, (n + kAddedAtATime - 1) / kAddedAtATime, [&](int, size_t block) {
    const size_t end = std::min(n, (block + 1) * kAddedAtATime);
    // Cleared by the thread that adds to them, while they are in its cache.
    if (first) std::fill(sums + block * kAddedAtATime, sums + end, 0.0);
    for (size_t j = block * kAddedAtATime; j < end; ++j) sums[j] += weight * values[j];
  });
}

void NetInPasses::Round(const double* sums, double scale, size_t n, float* out) const {
  ParallelFor(threads_, (n + kAddedAtATime - 1) / kAddedAtATime, [&](int, size_t block) {
    const size_t end = std::min(n, (block + 1) * kAddedAtATime);
    for (size_t j = block * kAddedAtATime; j < end; ++j)
      out[j] = static_cast<float>(sums[j] * scale);
  });
}

void NetInPasses::AddRows(const Part& part, double weight) {
  for (size_t t = 0; t < part.rows.size(); ++t) {
    const size_t dim = sizes_.row_dims[t];
    for (size_t i = 0; i < part.rows[t].size(); ++i) {
      const float* const values = row_gradients_[t].data() + i * dim;
      double* const sums = row_sums_[t].data() + part.rows[t][i] * dim;
      for (size_t j = 0; j < dim; ++j) sums[j] += weight * values[j];
    }
  }
}

absl::Status NetInPasses::RunPass(const NetInput& step, const Part& part, uint64_t seed,
                                  uint32_t epoch, NetGradients* pass) {
  NetInput input;
  input.batch = &part.batch;
  input.row_index = part.row_index.data();
  input.dense = step.dense;
  for (size_t t = 0; t < part.rows.size(); ++t) {
    const std::vector<uint32_t>& used = part.rows[t];
    const size_t dim = sizes_.row_dims[t];
    rows_[t].Resize(used.size() * dim, net_->host_memory());
    row_gradients_[t].Resize(used.size() * dim, net_->host_memory());
    for (size_t i = 0; i < used.size(); ++i)
      std::copy_n(step.rows[t].values + used[i] * dim, dim, rows_[t].data() + i * dim);
    RowsInput rows;
    rows.values = rows_[t].data();
    rows.n = used.size();
    input.rows.push_back(rows);
    pass->rows.push_back(row_gradients_[t].data());
  }
  for (std::vector<float>& values : pass_dense_) pass->dense.push_back(values.data());
  return net_->TrainStep(input, seed, epoch, pass);
}

absl::Status NetInPasses::TrainPass(const NetInput& input, const Part& part, SumPart place,
                                    double mean, uint64_t seed, uint32_t epoch,
                                    NetGradients* gradients) {
  NetGradients pass;
  // Not vector<bool>, whose neighbours share a byte between threads.
  std::vector<char> taken(sizes_.dense.size());  // each belongs to the thread that reports it
  const auto take = [&](size_t t) {
    const size_t n = sizes_.dense[t];
    Add(pass_dense_[t].data(), pass.weight_sum, place.first, n, sums_[t].data());
    if (place.last) Round(sums_[t].data(), mean, n, gradients->dense[t]);
    taken[t] = 1;
  };
  if (place.last && gradients->ready) {
    pass.ready = [&](size_t t) {
      take(t);
      gradients->ready(t);
    };
  }
  SLUICE_RETURN_IF_ERROR(RunPass(input, part, seed, epoch, &pass));
  for (LoggedValue& one : pass.logged) gradients->logged.push_back(std::move(one));
  gradients->skipped = pass.skipped;
  gradients->ends_training = pass.ends_training;
  if (pass.skipped || pass.ends_training) return absl::OkStatus();
  // The tensors that the network did not report early.
  for (size_t t = 0; t < taken.size(); ++t) {
    if (!taken[t]) take(t);
  }
  AddRows(part, pass.weight_sum);
  gradients->loss_sum += pass.loss_sum;
  return absl::OkStatus();
}

absl::Status NetInPasses::TrainPasses(const NetInput& input, const std::vector<StepPass>& passes,
                                      uint64_t seed, uint32_t epoch, NetGradients* gradients) {
  const Batch& batch = *input.batch;
  double weight = 0;
  for (size_t i = 0; i < batch.n; ++i) weight += batch.weight[i];
  const double mean = weight > 0 ? 1.0 / weight : 0.0;
  gradients->loss_sum = 0;
  gradients->weight_sum = weight;
  BeginSums(input);
  const std::vector<size_t> num_rows = NumRows(input);
  std::shared_ptr<Part> part = First(input, passes[0]);
  for (size_t p = 0; p < passes.size(); ++p) {
    const bool last = p + 1 == passes.size();
    // The part after this one is announced before this one is computed, so that a device copies it
    // meanwhile. After the last pass that is the next step's first part.
    std::shared_ptr<Part> next =
        last ? CopyAnnounced() : Copy(batch, input.row_index, num_rows, passes[p + 1]);
    if (next != nullptr) net_->Announce(ComingOf(next));
    SLUICE_RETURN_IF_ERROR(TrainPass(input, *part, {p == 0, last}, mean, seed, epoch, gradients));
    if (gradients->ends_training) return absl::OkStatus();
    if (gradients->skipped) {
      // One pass that overflows skips the whole step: the sums of the others would lack its share.
      gradients->loss_sum = gradients->weight_sum = 0;
      return absl::OkStatus();
    }
    (last ? ahead_ : part) = std::move(next);
  }
  for (size_t t = 0; t < num_rows.size(); ++t) {
    const size_t values = num_rows[t] * sizes_.row_dims[t];
    if (values > 0) Round(row_sums_[t].data(), mean, values, gradients->rows[t]);
  }
  return absl::OkStatus();
}

void NetInPasses::BeginSums(const NetInput& input) {
  pass_dense_.resize(sizes_.dense.size());
  for (size_t t = 0; t < sizes_.dense.size(); ++t) {
    pass_dense_[t].resize(sizes_.dense[t]);
    sums_[t].Reserve(sizes_.dense[t]);
  }
  for (size_t t = 0; t < sizes_.row_dims.size(); ++t) {
    const size_t values = input.rows[t].n * sizes_.row_dims[t];
    row_sums_[t].Reserve(values);
    if (values > 0) std::fill_n(row_sums_[t].data(), values, 0.0);
  }
}

ComingBatch NetInPasses::ComingOf(const std::shared_ptr<Part>& part) {
  ComingBatch coming;
  coming.batch = std::shared_ptr<const Batch>(part, &part->batch);
  coming.row_index = part->row_index.data();
  for (const std::vector<uint32_t>& rows : part->rows) coming.num_rows.push_back(rows.size());
  return coming;
}

absl::Status NetInPasses::Check(const NetInput& input, const NetGradients& gradients) const {
  const Batch& batch = *input.batch;
  bool caller_values = input.geo == nullptr, lacks_rows = input.row_index == nullptr;
  for (const RowsInput& rows : input.rows) {
    caller_values &= rows.resident == nullptr;
    lacks_rows |= rows.n > 0 && rows.values == nullptr;
  }
  if (!caller_values) {
    return absl::InvalidArgumentError(
        "a step in passes needs its values from the caller; remove gradient_merge_steps");
  }
  if (gradients.dense.size() != sizes_.dense.size() || input.dense.size() != sizes_.dense.size())
    return absl::InvalidArgumentError("the step has other dense tensors than the model");
  const size_t tables = sizes_.row_dims.size();
  if (gradients.rows.size() != tables || input.rows.size() != tables || !HasSlots(batch))
    return absl::InvalidArgumentError("the step has other sparse tables than the model");
  if (batch.key_offsets.size() != batch.n * batch.num_slots + 1 ||
      (!batch.keys.empty() && tables > 0 && lacks_rows)) {
    return absl::InvalidArgumentError("the batch has keys, but no rows were given");
  }
  return absl::OkStatus();
}

absl::Status NetInPasses::TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                                    NetGradients* gradients) {
  const std::vector<StepPass> passes = CutIntoPasses(*input.batch, pass_examples_, kAnywhere);
  if (passes.size() == 1) {
    // A step of one pass goes to the network as it is, which has its own announcement.
    ahead_ = nullptr;
    announced_ = {};
    return net_->TrainStep(input, seed, epoch, gradients);
  }
  SLUICE_RETURN_IF_ERROR(Check(input, *gradients));
  return TrainPasses(input, passes, seed, epoch, gradients);
}

}  // namespace sluice
