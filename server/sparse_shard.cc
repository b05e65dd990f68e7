// A sparse shard: rows by key, created by the first push that is applied to them.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "server/shard.h"
#include "server/wire_values.h"

namespace sluice {
namespace {

class SparseShard : public Shard {
 public:
  SparseShard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy)
      : Shard(std::move(table), index, policy),
        dim_(table_->dim()),
        store_(dim_, table_->state_floats()),
        sum_(dim_),
        mean_(dim_) {}

  PartStatus Decode(uint32_t rows, PayloadReader* payload, PushPart* part) const override {
    part->rows = rows;
    part->in_message = false;
    part->keys.resize(rows);
    part->values.resize(static_cast<size_t>(rows) * dim_);
    payload->Copy(part->keys.data(), part->keys.size() * sizeof(uint64_t));
    const PartStatus status =
        DecodeValues(payload, table_->wire_bytes(), part->values.size(), part->values.data());
    if (status != PART_OK) return status;
    for (uint64_t key : part->keys) {
      if (table_->ShardOf(key) != index_) return PART_BAD_SIZE;
    }
    return PART_OK;
  }

  void Read(const uint64_t* keys, size_t n, uint8_t* to) override {
    const size_t row_bytes = static_cast<size_t>(dim_) * table_->wire_bytes();
    std::vector<size_t> missing;
    {
      MutexLock lock(&mutex_);
      store_.VisitRows(keys, n, dim_, [&](size_t i, RowStore::Row row) {
        if (row.header == nullptr) {
          missing.push_back(i);
        } else {
          WriteValues(row.weights, dim_, table_->wire_bytes(), to + i * row_bytes);
        }
      });
    }
    // Initial values are a function of the key alone: no lock.
    std::vector<float> initial(dim_);
    for (size_t i : missing) {
      table_->InitialRow(keys[i], initial.data());
      WriteValues(initial.data(), dim_, table_->wire_bytes(), to + i * row_bytes);
    }
  }

  ShardValues Save() override {
    MutexLock lock(&mutex_);
    std::vector<uint32_t> order(store_.size());
    std::iota(order.begin(), order.end(), 0u);
    std::sort(order.begin(), order.end(),
              [this](uint32_t a, uint32_t b) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                return store_.header(a)->key < store_.header(b)->key;
              });
    ShardValues values;
    values.keys.reserve(order.size());
    values.weights.reserve(order.size() * dim_);
    for (uint32_t row : order) {
      values.keys.push_back(store_.header(row)->key);
      values.weights.insert(values.weights.end(), store_.weights(row), store_.weights(row) + dim_);
    }
    return values;
  }

  void LoadRow(uint64_t key, const float* weights) override {
    MutexLock lock(&mutex_);
    std::memcpy(RowOf(key).weights, weights, dim_ * sizeof(float));
  }

  uint64_t rows() override {
    MutexLock lock(&mutex_);
    return store_.size();
  }
  uint64_t bytes() override {
    MutexLock lock(&mutex_);
    return store_.bytes();
  }
  uint64_t reserved_bytes() override {
    MutexLock lock(&mutex_);
    return store_.reserved_bytes();
  }

 protected:
  void ApplyGradient(PushPart* part, double weight) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (weight == 0) std::fill(part->values.begin(), part->values.end(), 0.0f);
    Update(part->keys, [&](size_t i) { return &part->values[i * dim_]; });
  }

  void ApplyMean(const std::vector<Pending*>& parts, double total) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (const Pending* p : parts) {
      mean_.Add(p->part.keys.data(), p->part.keys.size(), p->part.values.data(), p->weight);
    }
    std::vector<float> row(dim_);
    Update(mean_.keys(), [&](size_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      mean_.Mean(i, total, row.data());
      return row.data();
    });
    mean_.Clear();
  }

  void AddToSum(const PushPart& part, double weight) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    sum_.Add(part.keys.data(), part.keys.size(), part.values.data(), weight);
  }

  void ApplySum(double total) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<float> row(dim_);
    Update(sum_.keys(), [&](size_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      sum_.Mean(i, total, row.data());
      return row.data();
    });
    sum_.Clear();
  }

  void AddDelta(const PushPart& part) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ForRows(part.keys, dim_, [&](size_t i, const RowStore::Row& row) {
      const float* delta = &part.values[i * dim_];
      for (uint32_t d = 0; d < dim_; ++d) {
        row.weights[d] = AddScaledDelta(row.weights[d], delta[d], policy_.merge_scale);
      }
    });
  }

 private:
  // gradient_of(i): [dim] of keys[i], asked for once, in order.
  template <typename F>
  void Update(const std::vector<uint64_t>& keys, F gradient_of)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::vector<float>& rates = Rates();
    const std::vector<TableLayout::Column>& columns = table_->columns();
    ForRows(keys, dim_ + table_->state_floats(), [&](size_t i, const RowStore::Row& row) {
      const float* gradient = gradient_of(i);
      for (size_t c = 0; c < columns.size(); ++c) {
        const TableLayout::Column& column = columns[c];
        float* arrays[UpdateRule::kMaxState];
        StateArrays(column, row, arrays);
        column.rule->Apply(row.weights + column.begin, arrays, gradient + column.begin, column.dim,
                           column.dim, rates[c], row.header->count);
      }
    });
  }

  // Calls update(i, row of keys[i]) for each key, its row created and its header brought up to
  // date. `floats` of the row are fetched ahead.
  template <typename F>
  void ForRows(const std::vector<uint64_t>& keys, size_t floats, F update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t step = ScheduleStep();
    const auto version = static_cast<uint32_t>(updates_);
    store_.VisitRows(keys.data(), keys.size(), floats,
                     [&](size_t i, RowStore::Row row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       if (row.header == nullptr) row = RowOf(keys[i]);
                       row.header->version = version;
                       row.header->last_seen = step;
                       ++row.header->count;
                       update(i, row);
                     });
  }

  RowStore::Row RowOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool created;
    const RowStore::Row row = store_.row(store_.FindOrInsert(key, &created));
    if (!created) return row;
    table_->InitialRow(key, row.weights);
    for (const TableLayout::Column& column : table_->columns()) {
      float* arrays[UpdateRule::kMaxState];
      StateArrays(column, row, arrays);
      column.rule->InitState(arrays, column.dim);
    }
    return row;
  }

  static void StateArrays(const TableLayout::Column& column, const RowStore::Row& row,
                          float** arrays) {
    for (int k = 0; k < column.rule->state_floats(); ++k) {
      arrays[k] = row.state + column.state_begin + k * column.dim;
    }
  }

  const uint32_t dim_;
  RowStore store_ ABSL_GUARDED_BY(mutex_);
  SparseGradientSum sum_ ABSL_GUARDED_BY(mutex_);
  SparseGradientMean mean_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Shard> MakeSparseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                       const UpdatePolicy& policy) {
  return std::make_unique<SparseShard>(std::move(table), index, policy);
}

}  // namespace sluice
