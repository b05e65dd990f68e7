// A sparse shard: rows by key, created by the first push that is applied to them.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "server/shard.h"
#include "server/wire_values.h"

namespace sluice {
namespace {

// Keys looked up at once: few enough that their rows are still in cache when they are used.
constexpr size_t kBatch = 64;

class SparseShard : public Shard {
 public:
  SparseShard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy)
      : Shard(std::move(table), index, policy),
        dim_(table_->dim()),
        store_(dim_, table_->state_floats()),
        sum_(dim_) {}

  PartStatus Decode(uint32_t rows, PayloadReader* payload, PushPart* part) const override {
    part->rows = rows;
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
      uint32_t rows[kBatch];
      for (size_t begin = 0; begin < n; begin += kBatch) {
        const size_t count = std::min(kBatch, n - begin);
        store_.Find(keys + begin, count, rows);
        for (size_t i = 0; i < count; ++i) {
          if (rows[i] == RowStore::kNoRow) {
            missing.push_back(begin + i);
          } else {
            EncodeValues(store_.weights(rows[i]), dim_, table_->wire_bytes(),
                         to + (begin + i) * row_bytes);
          }
        }
      }
    }
    // Initial values are a function of the key alone: no lock.
    std::vector<float> initial(dim_);
    for (size_t i : missing) {
      table_->InitialRow(keys[i], initial.data());
      EncodeValues(initial.data(), dim_, table_->wire_bytes(), to + i * row_bytes);
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
    std::memcpy(store_.weights(RowOf(key)), weights, dim_ * sizeof(float));
  }

  uint64_t rows() override {
    MutexLock lock(&mutex_);
    return store_.size();
  }
  uint64_t bytes() override {
    MutexLock lock(&mutex_);
    return store_.bytes();
  }

 protected:
  void ApplyGradient(PushPart* part, double weight) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (weight == 0) std::fill(part->values.begin(), part->values.end(), 0.0f);
    Update(part->keys, part->values.data());
  }

  void AddToSum(const PushPart& part, double weight) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    sum_.Add(part.keys.data(), part.keys.size(), part.values.data(), weight);
  }

  void ApplySum(double total) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    mean_.resize(sum_.keys().size() * dim_);
    sum_.Mean(total, mean_.data());
    Update(sum_.keys(), mean_.data());
    sum_.Clear();
  }

  void AddDelta(const PushPart& part) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    ForRows(part.keys, [&](size_t i, uint32_t row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      float* weights = store_.weights(row);
      const float* delta = &part.values[i * dim_];
      for (uint32_t d = 0; d < dim_; ++d) {
        weights[d] = AddScaledDelta(weights[d], delta[d], policy_.merge_scale);
      }
    });
  }

 private:
  // gradients [keys.size()][dim]
  void Update(const std::vector<uint64_t>& keys, const float* gradients)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::vector<float>& rates = Rates();
    ForRows(keys, [&](size_t i, uint32_t row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      const uint32_t count = store_.header(row)->count;
      for (size_t c = 0; c < rates.size(); ++c) {
        const TableLayout::Column& column = table_->columns()[c];
        float* arrays[UpdateRule::kMaxState];
        StateArrays(column, row, arrays);
        column.rule->Apply(store_.weights(row) + column.begin, arrays,
                           gradients + i * dim_ + column.begin, column.dim, column.dim, rates[c],
                           count);
      }
    });
  }

  // Calls update(i, row of keys[i]) for each key, its row created and its header brought up to
  // date.
  template <typename F>
  void ForRows(const std::vector<uint64_t>& keys, F update) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t step = ScheduleStep();
    uint32_t rows[kBatch];
    for (size_t begin = 0; begin < keys.size(); begin += kBatch) {
      const size_t count = std::min(kBatch, keys.size() - begin);
      store_.Find(&keys[begin], count, rows);
      for (size_t i = 0; i < count; ++i) {
        // Asks again when it was missing: the batch may hold a key twice.
        const uint32_t row = rows[i] != RowStore::kNoRow ? rows[i] : RowOf(keys[begin + i]);
        RowStore::Header* header = store_.header(row);
        header->version = static_cast<uint32_t>(updates_);
        header->last_seen = step;
        ++header->count;
        update(begin + i, row);
      }
    }
  }

  uint32_t RowOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool created;
    const uint32_t row = store_.FindOrInsert(key, &created);
    if (!created) return row;
    table_->InitialRow(key, store_.weights(row));
    for (const TableLayout::Column& column : table_->columns()) {
      float* arrays[UpdateRule::kMaxState];
      StateArrays(column, row, arrays);
      column.rule->InitState(arrays, column.dim);
    }
    return row;
  }

  void StateArrays(const TableLayout::Column& column, uint32_t row, float** arrays)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    for (int k = 0; k < column.rule->state_floats(); ++k) {
      arrays[k] = store_.state(row) + column.state_begin + k * column.dim;
    }
  }

  const uint32_t dim_;
  RowStore store_ ABSL_GUARDED_BY(mutex_);
  SparseGradientSum sum_ ABSL_GUARDED_BY(mutex_);
  std::vector<float> mean_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Shard> MakeSparseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                       const UpdatePolicy& policy) {
  return std::make_unique<SparseShard>(std::move(table), index, policy);
}

}  // namespace sluice
