// A sparse shard: rows by key, created by the first push that is applied to them.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "server/shard.h"

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

  std::unique_ptr<ShardCut> BeginCut() override {
    MutexLock lock(&mutex_);
    return CutOfRows(*table_, index_, std::make_unique<Rows>(this, store_.size(), updates_));
  }

  void LoadRows(const uint64_t* keys, const char* const* weights, size_t n) override {
    MutexLock lock(&mutex_);
    // Another thread may be on its way here when memory has run out: see RowStore::FindOrInsert.
    if (no_memory_) throw std::bad_alloc();
    no_memory_ = true;
    store_.set_bulk(true);
    store_.VisitRows(keys, n, dim_ + table_->state_floats(),
                     [&](size_t i, RowStore::Row row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       if (row.header == nullptr) row = NewRow(keys[i]);
                       std::memcpy(row.weights, weights[i], dim_ * sizeof(float));
                     });
    store_.set_bulk(false);
    no_memory_ = false;
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
    InitState(row);
    return row;
  }

  // With fresh state, and weights that the caller writes. It may be there already: then it stays as
  // it is.
  RowStore::Row NewRow(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool created;
    const RowStore::Row row = store_.row(store_.FindOrInsert(key, &created));
    if (created) InitState(row);
    return row;
  }

  void InitState(const RowStore::Row& row) const {
    for (const TableLayout::Column& column : table_->columns()) {
      float* arrays[UpdateRule::kMaxState];
      StateArrays(column, row, arrays);
      column.rule->InitState(arrays, column.dim);
    }
  }

  // The first `size` rows, as long as no update has changed one. A row never moves, but what it
  // holds is read under the lock, a chunk at a time.
  class Rows : public ShardRows {
   public:
    Rows(SparseShard* shard, uint64_t size, uint64_t updates)
        : shard_(shard), size_(size), updates_(updates) {}
    uint64_t size() const override { return size_; }

    absl::Status ReadKeys(uint64_t first, size_t n, uint64_t* keys) override {
      MutexLock lock(&shard_->mutex_);
      for (size_t i = 0; i < n; ++i) {
        keys[i] = shard_->store_.header(static_cast<uint32_t>(first + i))->key;
      }
      return Unchanged();
    }

    absl::Status ReadWeights(const uint32_t* rows, size_t n, size_t stride, char* to) override {
      constexpr size_t kAhead = 16;
      MutexLock lock(&shard_->mutex_);
      SLUICE_RETURN_IF_ERROR(Unchanged());
      const size_t bytes = shard_->dim_ * sizeof(float);
      for (size_t i = 0; i < n; ++i) {
        if (i + kAhead < n) {
          const auto* line =
              reinterpret_cast<const char*>(shard_->store_.weights(rows[i + kAhead]));
          for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(line + at);
        }
        std::memcpy(to + i * stride, shard_->store_.weights(rows[i]), bytes);
      }
      return absl::OkStatus();
    }

   private:
    absl::Status Unchanged() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(shard_->mutex_) {
      if (shard_->updates_ == updates_) return absl::OkStatus();
      return absl::AbortedError(
          absl::StrCat("shard ", shard_->index_, " of table '", shard_->table_->name(),
                       "' was updated while it was saved; save when no worker of the job trains"));
    }

    SparseShard* const shard_;
    const uint64_t size_, updates_;
  };

  static void StateArrays(const TableLayout::Column& column, const RowStore::Row& row,
                          float** arrays) {
    for (int k = 0; k < column.rule->state_floats(); ++k) {
      arrays[k] = row.state + column.state_begin + k * column.dim;
    }
  }

  const uint32_t dim_;
  RowStore store_ ABSL_GUARDED_BY(mutex_);
  bool no_memory_ ABSL_GUARDED_BY(mutex_) = false;  // LoadRows was cut short
  SparseGradientSum sum_ ABSL_GUARDED_BY(mutex_);
  SparseGradientMean mean_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Shard> MakeSparseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                       const UpdatePolicy& policy) {
  return std::make_unique<SparseShard>(std::move(table), index, policy);
}

}  // namespace sluice
