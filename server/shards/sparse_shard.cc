// A sparse shard: rows by key, created by the first push that is applied to them.
//
// A cut covers the rows that existed when it began. A row's header holds the number of cuts that
// had begun when the row was last changed, or was last read by a cut. A row with a lower number
// than the shard's is still needed by the current cut, so an update saves its record first.
#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/table/not_finite.h"
#include "server/shards/no_room.h"
#include "server/shards/not_finite_change.h"
#include "server/shards/shard.h"

namespace sluice {
namespace {

class SparseShard : public Shard {
 public:
  SparseShard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy,
              const ShardLimits& limits)
      : Shard(std::move(table), index, policy, limits.buffers),
        dim_(table_->dim()),
        most_rows_(ShareOfRows(*table_, this->index())),
        store_(dim_, table_->state_floats(), ReadyPages::OfProcess(), limits.row_memory),
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
    // Initial values depend only on the key, so no lock is needed.
    std::vector<float> initial(dim_);
    for (size_t i : missing) {
      table_->InitialRow(keys[i], initial.data());
      WriteValues(initial.data(), dim_, table_->wire_bytes(), to + i * row_bytes);
    }
  }

  void LoadRows(const uint64_t* keys, const char* const* weights, size_t n) override {
    FillRows(keys, n, [&](size_t i, const RowStore::Row& row) {
      std::memcpy(row.weights, weights[i], dim_ * sizeof(float));
    });
  }

  void RestoreRows(const uint64_t* keys, const char* const* records, size_t n) override {
    FillRows(keys, n, [&](size_t i, const RowStore::Row& row) {
      const char* from = records[i];
      std::memcpy(&row.header->last_seen, from, sizeof(row.header->last_seen));
      from += sizeof(row.header->last_seen);
      std::memcpy(&row.header->count, from, sizeof(row.header->count));
      from += sizeof(row.header->count);
      std::memcpy(row.weights, from, (dim_ + saved_state_floats()) * sizeof(float));
    });
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
  std::unique_ptr<ShardCut> MakeCut(CutState state, const CutOptions& options) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (images_ != nullptr) {
      return FailedCut(absl::FailedPreconditionError(
          absl::StrCat(Name(), " is being saved already; save it again when that is done")));
    }
    record_ = {state.facts.has_value(), (dim_ + state.state_floats) * sizeof(float)};
    auto rows = std::make_unique<Rows>(this, store_.size(), record_, cuts_ + 1, options.budget);
    Rows* const begun = rows.get();
    std::unique_ptr<ShardCut> cut = CutOfRows(*table_, index_, std::move(rows), std::move(state));
    ++cuts_;
    images_ = begun->Begin();
    return cut;
  }

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

  HeldSum SumNow() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return {sum_.keys(), sum_.sums()};
  }
  bool SetSum(HeldSum sum) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (sum.sums.size() != sum.keys.size() * dim_) return false;
    sum_.Restore(sum.keys, std::move(sum.sums));
    return true;
  }

  void AddDelta(const PushPart& part) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    bool finite = true;
    ForRows(part.keys, dim_, [&](size_t i, const RowStore::Row& row) {
      finite &= AddScaledDelta(&part.values[i * dim_], dim_, policy_.merge_scale, row.weights);
    });
    if (!finite) RefuseValues(part.keys);
  }

 private:
  // gradient_of(i) returns the gradient [dim] of keys[i]. It is called once per key, in order.
  template <typename F>
  void Update(const std::vector<uint64_t>& keys, F gradient_of)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const std::vector<float>& rates = Rates();
    const std::vector<TableLayout::Column>& columns = table_->columns();
    bool finite = true;
    ForRows(keys, dim_ + table_->state_floats(), [&](size_t i, const RowStore::Row& row) {
      const float* gradient = gradient_of(i);
      for (size_t c = 0; c < columns.size(); ++c) {
        const TableLayout::Column& column = columns[c];
        float* arrays[UpdateRule::kMaxState];
        StateArrays(column, row, arrays);
        finite &= column.rule->Apply(row.weights + column.begin, arrays, gradient + column.begin,
                                     column.dim, column.dim, rates[c], row.header->count);
      }
    });
    if (!finite) RefuseValues(keys);
  }

  // Throws NotFiniteChange, which names the first of these keys whose row has a value that is not
  // finite.
  void RefuseValues(const std::vector<uint64_t>& keys) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const size_t n = dim_ + table_->state_floats();  // the state follows the weights
    absl::Status why;
    store_.VisitRows(keys.data(), keys.size(), n, [&](size_t i, const RowStore::Row& row) {
      const size_t value = why.ok() ? FirstNotFinite(row.weights, n) : n;
      if (value < n) why = RowNotFinite(*table_, keys[i], value);
    });
    throw NotFiniteChange(why);
  }

  // Calls update(i, row of keys[i]) for each key, its row created and its header brought up to
  // date. `floats` of the row are fetched ahead.
  template <typename F>
  void ForRows(const std::vector<uint64_t>& keys, size_t floats, F update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const uint64_t step = ScheduleStep();
    const uint32_t cuts = cuts_;
    PreImages* const images = images_;
    store_.VisitRows(keys.data(), keys.size(), floats,
                     [&](size_t i, RowStore::Row row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                       if (row.header == nullptr) row = RowOf(keys[i]);
                       if (images != nullptr && row.header->version != cuts) {
                         SaveRecord(row, images);
                       }
                       row.header->version = cuts;
                       row.header->last_seen = step;
                       row.header->CountUpdate();
                       update(i, row);
                     });
  }

  RowStore::Row RowOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CheckMaxRows();
    // The job has failed, but pushes may still arrive; no insertion may follow: see
    // RowStore::FindOrInsert.
    if (no_memory_) throw std::bad_alloc();
    no_memory_ = true;
    bool created = false;
    RowStore::Row row;
    const bool room = store_.MakeRoom();
    if (room) row = store_.row(store_.FindOrInsert(key, &created));
    no_memory_ = false;
    if (!room) throw NoMemory();
    if (!created) return row;
    row.header->version = cuts_;  // not part of the current cut
    table_->InitialRow(key, row.weights);
    InitState(row);
    return row;
  }

  // The rows that max_rows leaves to shard `index`.
  static uint64_t ShareOfRows(const TableLayout& table, uint32_t index) {
    const uint64_t rows = table.config().max_rows();
    if (rows == 0) return UINT64_MAX;
    return rows / table.num_shards() + (index < rows % table.num_shards() ? 1 : 0);
  }

  // Call before a row is inserted. Throws NoRoom.
  void CheckMaxRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (store_.size() < most_rows_) return;
    throw NoRoom(absl::StrCat(
        "table '", table_->name(), "' has reached its max_rows, ", table_->config().max_rows(),
        ": shard ", index_, " of ", table_->num_shards(), " has ", store_.size(),
        " rows, its share, and needs another; raise max_rows of the table, or give its features "
        "fewer values, e.g. with hash_buckets"));
  }

  // The error when RowMemory refuses a row.
  NoRoom NoMemory() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return NoRoom(absl::StrCat(
        "no memory for another row of table '", table_->name(), "': ", store_.MemoryFigures(),
        ", and shard ", index_, " of ", table_->num_shards(), " has ", store_.size(),
        " rows; use more pservers or a machine with more memory, or limit the table's rows "
        "(max_rows, or hash_buckets of its features)"));
  }

  // Call before the row changes.
  void SaveRecord(const RowStore::Row& row, PreImages* images)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (images->failed()) return;
    char* const to = images->Add(row.header->key);
    if (to != nullptr) WriteRecord(row, record_, to);
  }

  // The part of a row's record that follows the key.
  struct RecordForm {
    bool history = false;    // last_seen and count
    size_t float_bytes = 0;  // of weights and state
    size_t bytes() const { return (history ? kRowHistoryBytes : 0) + float_bytes; }
  };
  static void WriteRecord(const RowStore::Row& row, const RecordForm& form, char* to) {
    if (form.history) {
      std::memcpy(to, &row.header->last_seen, sizeof(row.header->last_seen));
      to += sizeof(row.header->last_seen);
      std::memcpy(to, &row.header->count, sizeof(row.header->count));
      to += sizeof(row.header->count);
    }
    std::memcpy(to, row.weights, form.float_bytes);  // the state follows the weights
  }

  // Inserts a row with fresh optimizer state; the caller writes the weights. An existing row is
  // returned unchanged.
  RowStore::Row NewRow(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    CheckMaxRows();
    if (!store_.MakeRoom()) throw NoMemory();
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

  // Calls fill(i, row of keys[i]) for each key, its row created with fresh state.
  template <typename F>
  void FillRows(const uint64_t* keys, size_t n, F fill) {
    MutexLock lock(&mutex_);
    // Another thread may come here after memory ran out, and no insertion may follow then: see
    // RowStore::FindOrInsert.
    if (no_memory_) throw std::bad_alloc();
    no_memory_ = true;
    store_.set_bulk(true);
    try {
      store_.VisitRows(keys, n, dim_ + table_->state_floats(),
                       [&](size_t i, RowStore::Row row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                         if (row.header == nullptr) row = NewRow(keys[i]);
                         fill(i, row);
                       });
    } catch (const NoRoom&) {
      // Thrown before an insertion: the store is whole, and other threads find the same limit.
      no_memory_ = false;
      store_.set_bulk(false);
      throw;
    }
    store_.set_bulk(false);
    no_memory_ = false;
  }

  // The first `size` rows as they were when this was made. Rows never move, but their contents are
  // read under the lock, a piece at a time.
  class Rows : public ShardRows {
   public:
    Rows(SparseShard* shard, uint64_t size, const RecordForm& form, uint32_t cut,
         std::shared_ptr<PreImageBudget> budget)
        : shard_(shard),
          size_(size),
          form_(form),
          cut_(cut),
          images_(size, form.bytes(), std::move(budget)) {}
    ~Rows() override {
      if (!begun_) return;  // memory ran out in BeginCut, which holds the lock
      MutexLock lock(&shard_->mutex_);
      shard_->images_ = nullptr;
    }
    PreImages* Begin() {
      begun_ = true;
      return &images_;
    }
    uint64_t size() const override { return size_; }

    absl::Status ReadKeys(uint64_t first, size_t n, uint64_t* keys) override {
      MutexLock lock(&shard_->mutex_);
      for (size_t i = 0; i < n; ++i) {
        keys[i] = shard_->store_.header(static_cast<uint32_t>(first + i))->key;
      }
      return absl::OkStatus();
    }

    absl::Status ReadRecords(const uint32_t* rows, size_t n, size_t stride, char* to) override {
      // Bounds how long an update waits: the lock is held for one copy of this size.
      constexpr size_t kBytesALock = 64 << 10;
      const size_t most = std::max<size_t>(1, kBytesALock / form_.bytes());
      for (size_t begin = 0; begin < n; begin += most) {
        SLUICE_RETURN_IF_ERROR(
            ReadSome(rows + begin, std::min(most, n - begin), stride, to + begin * stride));
      }
      return absl::OkStatus();
    }

   private:
    absl::Status ReadSome(const uint32_t* rows, size_t n, size_t stride, char* to) {
      constexpr size_t kAhead = 16;
      const size_t bytes = sizeof(RowStore::Header) + form_.float_bytes;
      MutexLock lock(&shard_->mutex_);
      if (images_.failed()) {
        return absl::ResourceExhaustedError(absl::StrCat(
            "no memory for copies of the rows of ", shard_->Name(),
            " that were updated while it was saved; use more pservers, or machines with more "
            "memory"));
      }
      for (size_t i = 0; i < n; ++i, to += stride) {
        if (i + kAhead < n) {
          const auto* line = reinterpret_cast<const char*>(shard_->store_.header(rows[i + kAhead]));
          for (size_t at = 0; at < bytes; at += 64) __builtin_prefetch(line + at);
        }
        const RowStore::Row row = shard_->store_.row(rows[i]);
        if (row.header->version != cut_) {
          WriteRecord(row, form_, to);
          row.header->version = cut_;  // no later update needs to save it
        } else {
          std::memcpy(to, images_.Find(row.header->key), form_.bytes());
        }
      }
      return absl::OkStatus();
    }

    SparseShard* const shard_;
    const uint64_t size_;
    const RecordForm form_;
    const uint32_t cut_;  // its number
    bool begun_ = false;
    PreImages images_;  // under shard_->mutex_
  };

  static void StateArrays(const TableLayout::Column& column, const RowStore::Row& row,
                          float** arrays) {
    for (int k = 0; k < column.rule->state_floats(); ++k) {
      arrays[k] = row.state + column.state_begin + k * column.dim;
    }
  }

  const uint32_t dim_;
  const uint64_t most_rows_;
  RowStore store_ ABSL_GUARDED_BY(mutex_);
  bool no_memory_ ABSL_GUARDED_BY(mutex_) = false;  // an insertion was cut short
  uint32_t cuts_ ABSL_GUARDED_BY(mutex_) = 0;       // begun
  // The pre-images of the current cut, which owns them (null: no cut), and the form of its records.
  PreImages* images_ ABSL_GUARDED_BY(mutex_) = nullptr;
  RecordForm record_ ABSL_GUARDED_BY(mutex_);
  SparseGradientSum sum_ ABSL_GUARDED_BY(mutex_);
  SparseGradientMean mean_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

std::unique_ptr<Shard> MakeSparseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                       const UpdatePolicy& policy) {
  return std::make_unique<SparseShard>(std::move(table), index, policy, ShardLimits());
}

std::unique_ptr<Shard> MakeShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                                 const UpdatePolicy& policy, const ShardLimits& limits) {
  if (!table->sparse()) return MakeDenseShard(std::move(table), index, policy);
  return std::make_unique<SparseShard>(std::move(table), index, policy, limits);
}

}  // namespace sluice
