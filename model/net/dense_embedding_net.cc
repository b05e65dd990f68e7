#include "model/net/dense_embedding_net.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "model/net/parallel.h"

namespace sluice {
namespace {

constexpr size_t kRowsAtATime = 256;         // of one thread
constexpr size_t kFloatsAtATime = 64 << 10;  // that one thread sets to zero
constexpr size_t kAhead = 8;                 // a row is prefetched so many rows before it is copied

uint64_t KeysOf(const std::vector<DenseEmbeddingNet::Table>& tables) {
  uint64_t keys = 0;
  for (const auto& table : tables) keys = std::max(keys, table.first_key + table.rows);
  return keys;
}

}  // namespace

DenseEmbeddingNet::DenseEmbeddingNet(std::unique_ptr<DenseNet> net, std::vector<Table> tables,
                                     size_t row_dim, int threads)
    : net_(std::move(net)),
      tables_(std::move(tables)),
      row_dim_(row_dim),
      threads_(std::max(threads, 1)),
      numbers_(KeysOf(tables_)) {}

absl::Status DenseEmbeddingNet::NumberKeys(const std::vector<uint64_t>& keys) {
  // numbers_ is never cleared between batches: numbers below base_ are of earlier ones. Only when
  // the numbers run out does it begin again.
  if (keys.size() > UINT32_MAX - base_) {
    std::fill(numbers_.begin(), numbers_.end(), 0u);
    base_ = 1;
  }
  keys_.clear();
  row_index_.resize(keys.size());
  for (size_t k = 0; k < keys.size(); ++k) {
    if (k + kAhead < keys.size() && keys[k + kAhead] < numbers_.size())
      __builtin_prefetch(&numbers_[keys[k + kAhead]], 1);
    if (keys[k] >= numbers_.size()) {
      // The numbers given so far must not look like those of the next batch.
      base_ += static_cast<uint32_t>(keys_.size());
      return absl::InvalidArgumentError(absl::StrCat("the batch has the key ", keys[k],
                                                     ", but the dense tables of the features "
                                                     "have ",
                                                     numbers_.size(), " rows"));
    }
    uint32_t& number = numbers_[keys[k]];
    if (number < base_) {
      number = base_ + static_cast<uint32_t>(keys_.size());
      keys_.push_back(keys[k]);
    }
    row_index_[k] = number - base_;
  }
  // Numbers of this batch are below the base of the next one.
  base_ += static_cast<uint32_t>(keys_.size());
  return absl::OkStatus();
}

template <typename Body>
void DenseEmbeddingNet::ForRows(const Table& table, const Body& body) const {
  const size_t pieces = (keys_.size() + kRowsAtATime - 1) / kRowsAtATime;
  ParallelFor(threads_, pieces, [&](int, size_t piece) {
    const size_t end = std::min(keys_.size(), (piece + 1) * kRowsAtATime);
    for (size_t u = piece * kRowsAtATime; u < end; ++u) {
      const uint64_t row = keys_[u] - table.first_key;  // wraps around for keys before the first
      if (row < table.rows) body(u, row);
    }
  });
}

absl::StatusOr<NetInput> DenseEmbeddingNet::Gather(const NetInput& input) {
  if (input.dense.size() < tables_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("the step has ", input.dense.size(),
                                                   " dense tensors, but the tables of dense "
                                                   "features alone need ",
                                                   tables_.size()));
  }
  SLUICE_RETURN_IF_ERROR(NumberKeys(input.batch->keys));
  const OneThreadGuard one_thread;
  rows_.Resize(keys_.size() * row_dim_, net_->host_memory());
  // Columns of tables that lack some of the keys are 0 there.
  size_t covered = 0;
  for (const Table& table : tables_) covered += table.rows == numbers_.size() ? table.dim : 0;
  if (covered < row_dim_) std::fill(rows_.begin(), rows_.end(), 0.0f);
  for (size_t t = 0; t < tables_.size(); ++t) {
    const Table& table = tables_[t];
    ForRows(table, [&](size_t u, uint64_t row) {
      if (u + kAhead < keys_.size() && keys_[u + kAhead] - table.first_key < table.rows)
        __builtin_prefetch(input.dense[t] + (keys_[u + kAhead] - table.first_key) * table.dim);
      std::memcpy(rows_.data() + u * row_dim_ + table.begin, input.dense[t] + row * table.dim,
                  table.dim * sizeof(float));
    });
  }
  NetInput inner = input;
  inner.row_index = row_index_.data();
  RowsInput rows;
  rows.values = rows_.data();
  rows.n = keys_.size();
  inner.rows = {rows};
  // The network knows nothing of these tables: it sees rows.
  inner.dense.erase(inner.dense.begin(), inner.dense.begin() + tables_.size());
  return inner;
}

void DenseEmbeddingNet::Scatter(size_t t, float* gradient) const {
  const Table& table = tables_[t];
  const size_t floats = table.rows * table.dim;
  ParallelFor(threads_, (floats + kFloatsAtATime - 1) / kFloatsAtATime, [&](int, size_t piece) {
    const size_t begin = piece * kFloatsAtATime;
    // All zeros first, on all threads; then the few rows of the batch.
    std::memset(gradient + begin, 0, std::min(kFloatsAtATime, floats - begin) * sizeof(float));
  });
  ForRows(table, [&](size_t u, uint64_t row) {
    std::memcpy(gradient + row * table.dim, row_gradients_.data() + u * row_dim_ + table.begin,
                table.dim * sizeof(float));
  });
}

absl::Status DenseEmbeddingNet::Forward(const NetInput& input, float* logits) {
  SLUICE_ASSIGN_OR_RETURN(const NetInput inner, Gather(input));
  return net_->Forward(inner, logits);
}

absl::Status DenseEmbeddingNet::TrainStep(const NetInput& input, uint64_t seed, uint32_t epoch,
                                          NetGradients* gradients) {
  SLUICE_ASSIGN_OR_RETURN(const NetInput inner, Gather(input));
  if (gradients->dense.size() != input.dense.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a step got ", gradients->dense.size(),
                                                   " dense gradients for ", input.dense.size(),
                                                   " dense tensors"));
  }
  row_gradients_.Resize(keys_.size() * row_dim_, net_->host_memory());
  // The network gets the caller's object, because `ready` may read its sums.
  const NetGradients outer = *gradients;
  const size_t tables = tables_.size();
  gradients->rows = {row_gradients_.data()};
  gradients->dense.erase(gradients->dense.begin(), gradients->dense.begin() + tables);
  if (outer.ready) gradients->ready = [&](size_t i) { outer.ready(i + tables); };
  const absl::Status status = net_->TrainStep(inner, seed, epoch, gradients);
  gradients->rows = outer.rows;
  gradients->dense = outer.dense;
  gradients->ready = outer.ready;
  if (!status.ok() || gradients->skipped) return status;
  const OneThreadGuard one_thread;
  // After the network: its rows have gradients only when backward has ended.
  for (size_t t = tables; t-- > 0;) {
    Scatter(t, gradients->dense[t]);
    if (gradients->ready) gradients->ready(t);
  }
  return absl::OkStatus();
}

}  // namespace sluice
