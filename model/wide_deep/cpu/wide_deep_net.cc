#include "model/wide_deep/cpu/wide_deep_net.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"
#include "model/net/layer_loops.h"
#include "model/net/log_loss.h"
#include "model/net/parallel.h"
#include "model/wide_deep/shape/net_input.h"

namespace sluice {
namespace {

constexpr size_t kTile = Mlp::kTile;
// Rows that a thread takes at a time, at most. The weights of all layers do not fit in a
// second-level cache, so a layer's weights come from beyond it once for these rows.
constexpr size_t kMaxRows = 8 * kTile;
// A row is prefetched this many examples before it is used.
constexpr size_t kAhead = 2;

// A row is shorter than what a call of memcpy is worth.
void CopyRow(const float* from, size_t n, float* to) {
  for (; n >= 4; n -= 4, from += 4, to += 4) std::memcpy(to, from, 4 * sizeof(float));
  for (; n > 0; --n) *to++ = *from++;
}

template <typename Sum>
void AddRow(const float* __restrict from, Sum share, size_t n, Sum* __restrict to) {
  for (size_t j = 0; j < n; ++j) to[j] += from[j] * share;
}

// Calls body(lane, first, rows) for whole tiles of n rows, and the rest.
template <typename Body>
void ForRows(int threads, size_t n, const Body& body) {
  // At least two pieces for each thread, so that a slow thread does not keep all others waiting.
  const size_t share = n / 2 / static_cast<size_t>(threads) / kTile * kTile;
  const size_t most = std::clamp(share, kTile, kMaxRows);
  ParallelFor(threads, (n + most - 1) / most,
              [&](int lane, size_t i) { body(lane, i * most, std::min(most, n - i * most)); });
}

// Cuts the examples of the pass where their position in the global batch is a multiple of the
// chunk. Pieces count from the first example of the pass.
void CutAtChunks(const Batch& batch, const StepPass& pass, std::vector<RowPiece>* pieces) {
  pieces->clear();
  const size_t n = pass.n();
  if (batch.chunk == 0) return pieces->push_back({0, n});
  // The first piece may be shorter: the rank begins in the middle of a chunk.
  size_t end = batch.chunk - (batch.first_position + pass.begin) % batch.chunk;
  for (size_t begin = 0; begin < n; begin = end, end += batch.chunk) {
    pieces->push_back({begin, std::min(end, n)});
  }
}

}  // namespace

WideDeepNet::WideDeepNet(WideDeepShape shape, int threads, size_t pass_examples)
    : shape_(std::move(shape)),
      threads_(std::max(threads, 1)),
      pass_examples_(pass_examples),
      first_wide_(shape_.deep() ? 2 * (shape_.hidden.size() + 1) : 0),
      // Numbers of the input have no weights in front of them, so only embeddings need a gradient.
      embedded_(shape_.deep() && shape_.deep_inputs() > shape_.deep_numeric.size()),
      any_wide_(shape_.any_wide_column()),
      elements_(shape_.dense_elements()),
      runs_(RunsOf(shape_)),
      wide_sums_(shape_.wide_numeric.size() + 1),
      row_sums_(shape_.tables()) {}

std::vector<WideDeepNet::SlotRun> WideDeepNet::RunsOf(const WideDeepShape& shape) {
  std::vector<SlotRun> runs;
  for (size_t s = 0; s < shape.slots.size(); ++s) {
    const size_t table = shape.slots[s].table;
    if (table >= shape.tables() || shape.row_dim(table) == 0) continue;
    if (!runs.empty() && runs.back().end == s && runs.back().table == table) {
      ++runs.back().end;
      continue;
    }
    SlotRun run;
    run.begin = s, run.end = s + 1;
    run.table = table, run.row_dim = shape.row_dim(table), run.dim = shape.embedding_dims[table];
    run.embedding_begin = shape.embedding_begin(table);
    runs.push_back(run);
  }
  return runs;
}

void WideDeepNet::SetRows(const NetInput& input) {
  for (SlotRun& run : runs_) {
    run.values = input.rows[run.table].values;
    // A table without keys in the batch may have no rows at all.
    run.embeddings = run.values == nullptr ? nullptr : run.values + run.embedding_begin;
  }
}

absl::StatusOr<std::unique_ptr<DenseNet>> WideDeepNet::Create(WideDeepShape shape, int threads,
                                                              size_t max_batch,
                                                              size_t pass_examples) {
  SLUICE_RETURN_IF_ERROR(CheckShape(shape));
  std::unique_ptr<WideDeepNet> net(new WideDeepNet(std::move(shape), threads, pass_examples));
  if (net->shape_.deep()) {
    SLUICE_ASSIGN_OR_RETURN(net->mlp_, Mlp::Create(net->shape_.widths(), net->embedded_,
                                                   net->shape_.bf16, net->threads_));
  }
  net->Reserve(max_batch);
  return net;
}

void WideDeepNet::Reserve(size_t n) {
  if (logits_.size() >= n) return;
  logits_.resize(n);
  d_logits_.resize(n);
  losses_.resize(n);
  if (mlp_ != nullptr) mlp_->Reserve(n);
}

absl::Status WideDeepNet::Forward(const NetInput& input, float* logits) {
  SLUICE_RETURN_IF_ERROR(CheckInput(shape_, elements_, input));
  SetRows(input);
  // The loops here have threads of their own, in which oneDNN must not start more.
  const OneThreadGuard one_thread;
  const StepPass all = {0, input.batch->n};
  Reserve(all.n());
  if (mlp_ != nullptr) mlp_->SetWeights(input.dense.data(), /*training=*/false);
  const Dropout none;
  ForRows(threads_, all.n(), [&](int lane, size_t first, size_t rows) {
    ForwardRows(lane, input, all, first, rows, none, nullptr, logits);
  });
  return absl::OkStatus();
}

absl::Status WideDeepNet::TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                                    NetGradients* gradients) {
  const Batch& batch = *input.batch;
  const Dropout dropout(shape_.dropout, seed, epoch);
  SLUICE_RETURN_IF_ERROR(CheckTrainStep(shape_, elements_, input, dropout.active(), *gradients));
  SetRows(input);
  gradients->loss_sum = gradients->weight_sum = 0;
  gradients->skipped = false;
  if (batch.n == 0) {
    // A rank without examples still sends its gradients, since the others wait for them.
    SetToZero(shape_, elements_, input, gradients);
    return absl::OkStatus();
  }
  const OneThreadGuard one_thread;
  if (mlp_ != nullptr) mlp_->SetWeights(input.dense.data(), /*training=*/true);
  for (size_t i = 0; i < batch.n; ++i) gradients->weight_sum += batch.weight[i];
  const double mean = gradients->weight_sum > 0 ? 1.0 / gradients->weight_sum : 0.0;
  const std::vector<StepPass> passes = CutIntoPasses(batch, pass_examples_, kTile);
  Pass pass;
  pass.cut = batch.chunk > 0 || passes.size() > 1;
  // Sums that are cut at chunks must not depend on the batch, so they are scaled at the end. Other
  // sums start from scaled gradients.
  (pass.cut ? pass.scale : pass.first_scale) = mean;
  for (size_t p = 0; p < passes.size(); ++p) {
    pass.examples = passes[p];
    pass.part = {p == 0, p + 1 == passes.size()};
    if (absl::Status status = TrainPass(input, dropout, pass, gradients); !status.ok()) {
      for (auto& sums : row_sums_) sums.clear();  // earlier passes have added to them
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status WideDeepNet::TrainPass(const NetInput& input, const Dropout& dropout, const Pass& pass,
                                    NetGradients* gradients) {
  const Batch& batch = *input.batch;
  const size_t n = pass.examples.n();
  Reserve(n);
  ForRows(threads_, n, [&](int lane, size_t first, size_t rows) {
    ForwardRows(lane, input, pass.examples, first, rows, dropout, batch.example_id.data(),
                logits_.data());
    for (size_t row = first; row < first + rows; ++row)
      Loss(batch, pass.examples.begin + row, row, pass.first_scale);
    if (mlp_ != nullptr) mlp_->Backward(lane, first, rows, dropout, d_logits_.data() + first);
  });
  // In the order of the rows and not of the threads, so that the sum is the same for any number of
  // them.
  for (size_t row = 0; row < n; ++row) gradients->loss_sum += losses_[row];
  pieces_.clear();
  if (pass.cut) CutAtChunks(batch, pass.examples, &pieces_);
  if (mlp_ != nullptr) {
    SLUICE_RETURN_IF_ERROR(mlp_->Gradients(n, pieces_, pass.scale, pass.part,
                                           gradients->dense.data(), gradients->ready));
  }
  WideGradients(input, pass, gradients);
  if (!runs_.empty()) RowGradients(input, pass, gradients);
  return absl::OkStatus();
}

void WideDeepNet::ForwardRows(int lane, const NetInput& input, const StepPass& pass, size_t row,
                              size_t n, const Dropout& dropout, const uint64_t* ids,
                              float* logits) {
  const size_t first = pass.begin + row;
  if (mlp_ != nullptr) {
    for (size_t i = 0; i < n; ++i) {
      if (i + kAhead < n)
        PrefetchRows(input, first + i + kAhead, [](const SlotRun& run) { return run.values; });
      DeepInput(input, first + i, mlp_->input(row + i));
    }
    mlp_->Forward(lane, row, n, dropout, dropout.active() ? ids + first : nullptr, logits + row);
  }
  for (size_t i = 0; i < n; ++i) {
    const double deep = mlp_ != nullptr ? logits[row + i] : 0.0;
    logits[row + i] = static_cast<float>(WideLogit(input, first + i) + deep);
  }
}

double WideDeepNet::WideLogit(const NetInput& input, size_t example) const {
  const Batch& batch = *input.batch;
  size_t tensor = first_wide_;
  double sum = 0;
  if (!shape_.wide_numeric.empty()) {
    const float* weight = input.dense[tensor++];
    const float* x = batch.numeric.data() + example * batch.num_numeric;
    for (size_t j = 0; j < shape_.wide_numeric.size(); ++j) {
      sum += static_cast<double>(weight[j]) * x[shape_.wide_numeric[j]];
    }
  }
  if (shape_.wide_bias) sum += input.dense[tensor][0];
  if (!any_wide_) return sum;
  const uint32_t* offsets = batch.key_offsets.data() + example * batch.num_slots;
  const float* const times = batch.key_weights.empty() ? nullptr : batch.key_weights.data();
  for (const SlotRun& run : runs_) {
    if (run.embedding_begin == 0) continue;
    for (size_t s = run.begin; s < run.end; ++s) {
      if (!shape_.slots[s].wide) continue;
      for (uint32_t k = offsets[s]; k < offsets[s + 1]; ++k) {
        const double weight = run.values[input.row_index[k] * run.row_dim];
        sum += times == nullptr ? weight : weight * times[k];
      }
    }
  }
  return sum;
}

void WideDeepNet::PoolWeighted(const NetInput& input, const SlotRun& run, size_t slot,
                               uint32_t begin, uint32_t end, float* to) const {
  const float* const weights = input.batch->key_weights.data();
  const size_t dim = run.dim;
  const float share = ShareOf(input, slot, begin, end);
  std::fill_n(to, dim, 0.0f);
  for (uint32_t k = begin; k < end; ++k)
    AddRow(run.embeddings + input.row_index[k] * run.row_dim, weights[k] * share, dim, to);
}

float WideDeepNet::ShareOf(const NetInput& input, size_t slot, uint32_t begin, uint32_t end) const {
  if (!shape_.slots[slot].mean) return 1;
  double sum = 0;
  for (uint32_t k = begin; k < end; ++k) sum += input.batch->key_weights[k];
  // Weights of a mean are not negative. If all are 0, so is the mean.
  return sum > 0 ? static_cast<float>(1 / sum) : 0;
}

void WideDeepNet::DeepInput(const NetInput& input, size_t example, float* to) const {
  const Batch& batch = *input.batch;
  const uint32_t* offsets = batch.key_offsets.data() + example * batch.num_slots;
  for (const SlotRun& run : runs_) {
    const size_t dim = run.dim, row_dim = run.row_dim;
    const float* const embeddings = run.embeddings;
    for (size_t s = run.begin; s < run.end && dim > 0; ++s) {
      if (!shape_.slots[s].deep) continue;
      if (shape_.slots[s].weighted && !batch.key_weights.empty()) {
        PoolWeighted(input, run, s, offsets[s], offsets[s + 1], to);
        to += dim;
        continue;
      }
      // A slot without keys is the zero vector. The first row is copied, which saves a pass of
      // zeros.
      const uint32_t keys = offsets[s + 1] - offsets[s];
      if (keys == 0) {
        std::fill_n(to, dim, 0.0f);
      } else {
        CopyRow(embeddings + input.row_index[offsets[s]] * row_dim, dim, to);
      }
      for (uint32_t k = offsets[s] + 1; k < offsets[s + 1]; ++k)
        AddRow(embeddings + input.row_index[k] * row_dim, 1.0f, dim, to);
      if (shape_.slots[s].mean && keys > 1) {
        for (size_t j = 0; j < dim; ++j) to[j] /= static_cast<float>(keys);
      }
      to += dim;
    }
  }
  const float* x = batch.numeric.data() + example * batch.num_numeric;
  for (uint32_t j : shape_.deep_numeric) *to++ = x[j];
}

template <typename RowsOf>
void WideDeepNet::PrefetchRows(const NetInput& input, size_t example, const RowsOf& rows_of) const {
  const Batch& batch = *input.batch;
  const uint32_t* offsets = batch.key_offsets.data() + example * batch.num_slots;
  for (const SlotRun& run : runs_) {
    const auto* const rows = rows_of(run);
    for (uint32_t k = offsets[run.begin]; k < offsets[run.end]; ++k) {
      const auto* const row = rows + input.row_index[k] * run.row_dim;
      __builtin_prefetch(row);
      // A row often begins in one line and ends in the next.
      __builtin_prefetch(row + run.row_dim - 1);
    }
  }
}

void WideDeepNet::Loss(const Batch& batch, size_t example, size_t row, double scale) {
  const double weight = batch.weight[example];
  losses_[row] = weight * LogLoss(logits_[row], batch.label[example]);
  // The derivative of the log loss by the logit.
  const double error = static_cast<double>(Sigmoid(logits_[row])) - batch.label[example];
  d_logits_[row] = static_cast<float>(weight * error * scale);
}

void WideDeepNet::WideGradients(const NetInput& input, const Pass& pass, NetGradients* gradients) {
  const Batch& batch = *input.batch;
  const size_t numbers = shape_.wide_numeric.size(), n = pass.examples.n();
  if (pass.part.first) std::fill(wide_sums_.begin(), wide_sums_.end(), 0.0);
  for (size_t j = 0; j < numbers; ++j) {
    const float* x =
        batch.numeric.data() + pass.examples.begin * batch.num_numeric + shape_.wide_numeric[j];
    double sum = wide_sums_[j];
    for (size_t row = 0; row < n; ++row)
      sum += static_cast<double>(d_logits_[row]) * x[row * batch.num_numeric];
    wide_sums_[j] = sum;
  }
  double sum = wide_sums_[numbers];
  for (size_t row = 0; row < n && shape_.wide_bias; ++row) sum += d_logits_[row];
  wide_sums_[numbers] = sum;
  if (!pass.part.last) return;
  size_t tensor = first_wide_;
  float* const weights = numbers > 0 ? gradients->dense[tensor++] : nullptr;
  for (size_t j = 0; j < numbers; ++j) weights[j] = static_cast<float>(wide_sums_[j] * pass.scale);
  if (shape_.wide_bias) gradients->dense[tensor][0] = static_cast<float>(sum * pass.scale);
}

template <typename Sum>
std::vector<WideDeepNet::OwnRows<Sum>> WideDeepNet::OwnOf(const NetInput& input, size_t thread,
                                                          const std::vector<Sum*>& sums) const {
  std::vector<OwnRows<Sum>> own;
  for (size_t t = 0; t < sums.size(); ++t) {
    const size_t n = input.rows[t].n;
    own.push_back({sums[t], n * thread / threads_, n * (thread + 1) / threads_});
  }
  return own;
}

// Each thread owns a range of the rows of each table and scans all keys. No two threads write the
// same row, and a row's sum always has the same order. Sums that are not cut are the gradients.
// Sums that are cut are cleared while they are rounded, which saves a pass over them.
void WideDeepNet::RowGradients(const NetInput& input, const Pass& pass, NetGradients* gradients) {
  std::vector<double*> sums;
  for (size_t t = 0; t < shape_.tables(); ++t) {
    const size_t values = input.rows[t].n * shape_.row_dim(t);
    if (pass.cut && row_sums_[t].size() < values) row_sums_[t].resize(values);
    sums.push_back(row_sums_[t].data());
  }
  const LayerLoops& loops = BestLayerLoops();
  ParallelFor(threads_, threads_, [&](int, size_t thread) {
    if (!pass.cut) {
      const auto own = OwnOf(input, thread, gradients->rows);
      for (size_t t = 0; t < own.size(); ++t) {
        const size_t dim = shape_.row_dim(t);
        std::fill_n(own[t].sums + own[t].begin * dim, (own[t].end - own[t].begin) * dim, 0.0f);
      }
      return AddRows(input, pass, own);
    }
    const auto own = OwnOf(input, thread, sums);
    AddRows(input, pass, own);
    for (size_t t = 0; t < own.size() && pass.part.last; ++t) {
      const size_t dim = shape_.row_dim(t), at = own[t].begin * dim;
      loops.round_and_clear(own[t].sums + at, pass.scale, gradients->rows[t] + at,
                            (own[t].end - own[t].begin) * dim);
    }
  });
}

template <typename Sum>
void WideDeepNet::AddRows(const NetInput& input, const Pass& pass,
                          const std::vector<OwnRows<Sum>>& own) const {
  const auto sums_of = [&own](const SlotRun& run) { return own[run.table].sums; };
  for (size_t row = 0; row < pass.examples.n(); ++row) {
    const size_t example = pass.examples.begin + row;
    if (row + kAhead < pass.examples.n()) PrefetchRows(input, example + kAhead, sums_of);
    AddExample(input, example, row, own);
  }
}

template <typename Sum>
void WideDeepNet::AddExample(const NetInput& input, size_t example, size_t pass_row,
                             const std::vector<OwnRows<Sum>>& own) const {
  const Batch& batch = *input.batch;
  const uint32_t* offsets = batch.key_offsets.data() + example * batch.num_slots;
  const float* d_input = embedded_ ? mlp_->input_gradient(pass_row) : nullptr;
  for (const SlotRun& run : runs_) {
    const size_t dim = run.dim, row_dim = run.row_dim, begin = run.embedding_begin;
    const OwnRows<Sum> rows = own[run.table];
    for (size_t s = run.begin; s < run.end; ++s) {
      const WideDeepShape::Slot& slot = shape_.slots[s];
      const bool deep = d_input != nullptr && dim > 0 && slot.deep;
      const uint32_t keys = offsets[s + 1] - offsets[s];
      const bool weighted = slot.weighted && !batch.key_weights.empty();
      const Sum share = weighted                ? Sum{ShareOf(input, s, offsets[s], offsets[s + 1])}
                        : slot.mean && keys > 1 ? Sum{1} / static_cast<Sum>(keys)
                                                : Sum{1};
      for (uint32_t k = offsets[s]; k < offsets[s + 1]; ++k) {
        const size_t row = input.row_index[k];
        if (row < rows.begin || row >= rows.end) continue;
        const Sum weight = weighted ? Sum{batch.key_weights[k]} : Sum{1};
        Sum* to = rows.sums + row * row_dim;
        if (begin > 0 && slot.wide) to[0] += d_logits_[pass_row] * weight;
        if (!deep) continue;
        AddRow(d_input, share * weight, dim, to + begin);
      }
      if (deep) d_input += dim;
    }
  }
}

}  // namespace sluice
