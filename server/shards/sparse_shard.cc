#include "server/shards/sparse_shard.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/saved_model/delta_image.h"
#include "common/table/not_finite.h"
#include "server/shards/eviction.h"
#include "server/shards/no_room.h"
#include "server/shards/not_finite_change.h"

namespace sluice {
namespace {

// Slots that an update sweeps at least, so that a table of few updates is swept, too.
constexpr size_t kLeastSwept = 8;
// Days that a table remembers at least, so that a limit by days may be set or raised later.
constexpr uint32_t kLeastDays = 400;

// How far back the options of a table may ask for days. 0: they never do.
uint32_t KeptDays(const TableConfig& table) {
  if (!table.has_expire() && !table.has_evict()) return 0;
  // After 64 halvings nothing is left of a count.
  const double halvings = std::min(64 * table.evict().half_life_days(), 1e6);
  return std::max({kLeastDays, table.expire().after_days(), static_cast<uint32_t>(halvings)});
}

}  // namespace

SparseShard::SparseShard(std::shared_ptr<const TableLayout> table, uint32_t index,
                         const UpdatePolicy& policy, const ShardLimits& limits)
    : Shard(std::move(table), index, policy, limits.buffers),
      dim_(table_->dim()),
      most_rows_(table_->RowLimitOf(this->index())),
      evicts_(table_->config().has_evict()),
      expiry_(table_->config().expire()),
      kept_days_(KeptDays(table_->config())),
      store_(dim_, table_->state_floats(), ReadyPages::OfProcess(), limits.row_memory),
      cuts_(&store_),
      ages_(table_->config().expire().after_steps()),
      admission_(table_->config().has_admit()
                     ? std::make_unique<AdmissionRule>(table_->config().admit(),
                                                       table_->sketch_bytes(), table_->stream())
                     : nullptr),
      sum_(dim_),
      mean_(dim_) {
  if (kept_days_ > 0 && policy_.day.has_value()) days_.Begin(*policy_.day, 0);
}

PartStatus SparseShard::Decode(uint32_t rows, PayloadReader* payload, PushPart* part) const {
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

void SparseShard::Read(const uint64_t* keys, size_t n, uint8_t* to) {
  const size_t row_bytes = static_cast<size_t>(dim_) * table_->wire_bytes();
  std::vector<size_t> missing;
  {
    MutexLock lock(&mutex_);
    const uint64_t live_from = LiveFrom();
    store_.VisitRows(keys, n, dim_, [&](size_t i, RowStore::Row row) {
      if (row.header == nullptr || Expired(*row.header, live_from)) {
        missing.push_back(i);
      } else {
        WriteValues(row.weights, dim_, table_->wire_bytes(), to + i * row_bytes);
      }
    });
  }
  // These values depend only on the key, so no lock is needed.
  std::vector<float> initial(dim_);
  for (size_t i : missing) {
    table_->RowBeforeUpdates(keys[i], initial.data());
    WriteValues(initial.data(), dim_, table_->wire_bytes(), to + i * row_bytes);
  }
}

void SparseShard::LoadRows(const uint64_t* keys, const char* const* weights, size_t n) {
  FillRows(keys, n, [&](size_t i, const RowStore::Row& row) {
    std::memcpy(row.weights, weights[i], dim_ * sizeof(float));
  });
  MutexLock lock(&mutex_);
  loaded_values_ = true;
}

void SparseShard::RestoreRows(const uint64_t* keys, const char* const* records, size_t n) {
  FillRows(keys, n, [&](size_t i, const RowStore::Row& row) {
    const char* from = records[i];
    std::memcpy(&row.header->last_seen, from, sizeof(row.header->last_seen));
    from += sizeof(row.header->last_seen);
    std::memcpy(&row.header->count, from, sizeof(row.header->count));
    from += sizeof(row.header->count);
    std::memcpy(row.weights, from, (dim_ + saved_state_floats()) * sizeof(float));
  });
}

void SparseShard::RestorePosition(const ShardFacts& facts) {
  Shard::RestorePosition(facts);
  MutexLock lock(&mutex_);
  turnover_ = facts.turnover();
  if (policy_.keeps_tombstones) tombstones_.Restore(facts);
  if (kept_days_ > 0) {
    days_.Restore(facts);
    if (policy_.day.has_value()) days_.Begin(*policy_.day, ScheduleStep());
    days_.Prune(kept_days_);
  }
  // A sketch of another size, which only a new job can meet, is of no use.
  if (admission_ != nullptr) admission_->sketch()->Restore(facts.admission_sketch());
  if (!expiry_.on()) return;
  // Their file does not say when they were updated, and the schedule continues.
  for (uint32_t id = 0; loaded_values_ && id < store_.slots(); ++id) {
    RowStore::Header* const row = store_.header(id);
    if (row->last_seen == 0) row->last_seen = ScheduleStep();
  }
  counted_ = false;
  AdvanceAges(LiveFrom());
}

void SparseShard::AddFacts(ShardFacts* facts) const {
  if (turnover_.ByteSizeLong() > 0) *facts->mutable_turnover() = turnover_;
  if (policy_.keeps_tombstones) tombstones_.Write(facts);
  days_.Write(facts);
  if (admission_ != nullptr) facts->set_admission_sketch(admission_->sketch()->Image());
}

RowTurnover SparseShard::turnover() {
  MutexLock lock(&mutex_);
  return turnover_;
}

uint64_t SparseShard::rows() {
  MutexLock lock(&mutex_);
  // No row expires while the table is loaded.
  if (counted_) AdvanceAges(LiveFrom());
  return LiveRows();
}
uint64_t SparseShard::bytes() {
  MutexLock lock(&mutex_);
  return store_.bytes();
}
uint64_t SparseShard::reserved_bytes() {
  MutexLock lock(&mutex_);
  return store_.reserved_bytes() + (admission_ != nullptr ? admission_->sketch()->bytes() : 0);
}

void SparseShard::DropTombstones(uint64_t before) {
  MutexLock lock(&mutex_);
  if (before > 0) {
    tombstones_.DropBefore(RowTombstones::StepOfDelta(before));
  } else {
    tombstones_ = RowTombstones();
  }
}

absl::Status SparseShard::NamesGoneSince(uint64_t since) {
  MutexLock lock(&mutex_);
  if (counted_) AdvanceAges(LiveFrom());
  return CheckGone(since);
}

absl::Status SparseShard::CheckGone(uint64_t since) const {
  if (tombstones_.complete_since() > RowTombstones::StepOfDelta(since)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more rows of ", Name(), " have expired, or were evicted or deleted, since the ",
        "export before than a shard remembers (", RowTombstones::kMost, ")"));
  }
  // A delta also names the expired rows that the sweep has not reached.
  if (tombstones_.size() + ages_.expired() > kMostGoneKeys) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "more rows of ", Name(), " have expired, or were evicted or deleted, than a delta names (",
        kMostGoneKeys, ")"));
  }
  return absl::OkStatus();
}

absl::Status SparseShard::ListGone(uint64_t since, std::vector<uint64_t>* gone) const {
  SLUICE_RETURN_IF_ERROR(CheckGone(since));
  std::vector<uint64_t> keys;
  tombstones_.AddKeysSince(RowTombstones::StepOfDelta(since), &keys);
  std::vector<uint32_t> rows(keys.size());
  store_.Find(keys.data(), keys.size(), rows.data());
  // A key may have come back, even before the export before.
  for (size_t i = 0; i < keys.size(); ++i) {
    if (rows[i] == RowStore::kNoRow) gone->push_back(keys[i]);
  }
  return absl::OkStatus();
}

std::unique_ptr<ShardCut> SparseShard::MakeCut(CutState state, const CutOptions& options) {
  if (cuts_.open()) {
    return FailedCut(absl::FailedPreconditionError(
        absl::StrCat(Name(), " is being saved already; save it again when that is done")));
  }
  RowCuts::Source source;
  source.mutex = &mutex_;
  source.name = Name();
  source.expiry = &expiry_;
  source.days = &days_;
  source.live_from = LiveFrom();
  source.names_gone = policy_.keeps_tombstones;
  source.since = options.since;
  source.budget = options.budget;
  if (options.since > 0) {
    if (absl::Status listed = ListGone(options.since, &source.gone); !listed.ok())
      return FailedCut(std::move(listed));
  }
  auto rows = cuts_.NewReader(
      {state.facts.has_value(), (dim_ + state.state_floats) * sizeof(float)}, std::move(source));
  RowCuts::Reader* const reader = rows.get();
  std::unique_ptr<ShardCut> cut =
      options.since > 0 ? CutOfDelta(*table_, index_, std::move(rows))
                        : CutOfRows(*table_, index_, std::move(rows), std::move(state));
  cuts_.Begin(reader);
  return cut;
}

void SparseShard::ApplyGradient(PushPart* part, double weight) {
  if (weight == 0) std::fill(part->values.begin(), part->values.end(), 0.0f);
  Update(part->keys, [&](size_t i) { return &part->values[i * dim_]; });
}

void SparseShard::ApplyMean(const std::vector<Pending*>& parts, double total) {
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

void SparseShard::AddToSum(const PushPart& part, double weight) {
  sum_.Add(part.keys.data(), part.keys.size(), part.values.data(), weight);
}

void SparseShard::ApplySum(double total) {
  std::vector<float> row(dim_);
  Update(sum_.keys(), [&](size_t i) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    sum_.Mean(i, total, row.data());
    return row.data();
  });
  sum_.Clear();
}

HeldSum SparseShard::SumNow() const { return {sum_.keys(), sum_.sums()}; }
bool SparseShard::SetSum(HeldSum sum) {
  if (sum.sums.size() != sum.keys.size() * dim_) return false;
  sum_.Restore(sum.keys, std::move(sum.sums));
  return true;
}

void SparseShard::AddDelta(const PushPart& part) {
  bool finite = true;
  ForRows(part.keys, dim_, [&](size_t i, const RowStore::Row& row) {
    finite &= AddScaledDelta(&part.values[i * dim_], dim_, policy_.merge_scale, row.weights);
  });
  if (!finite) RefuseValues(part.keys);
}

template <typename F>
void SparseShard::Update(const std::vector<uint64_t>& keys, F gradient_of) {
  if (admission_ != nullptr) CountForAdmission(keys);
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

void SparseShard::RefuseValues(const std::vector<uint64_t>& keys) const {
  const size_t n = dim_ + table_->state_floats();  // the state follows the weights
  absl::Status why;
  store_.VisitRows(keys.data(), keys.size(), n, [&](size_t i, const RowStore::Row& row) {
    const size_t value = why.ok() && row.header != nullptr ? FirstNotFinite(row.weights, n) : n;
    if (value < n) why = RowNotFinite(*table_, keys[i], value);
  });
  throw NotFiniteChange(why);
}

void SparseShard::CountForAdmission(const std::vector<uint64_t>& keys) {
  const uint64_t live_from = LiveFrom();
  store_.VisitRows(keys.data(), keys.size(), /*floats=*/0,
                   [&](size_t i, RowStore::Row row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                     if (row.header == nullptr || Expired(*row.header, live_from))
                       admission_->sketch()->Add(keys[i]);
                   });
}

bool SparseShard::MayBegin(uint64_t key) {
  if (admission_ == nullptr || admission_->Admits(key)) return true;
  turnover_.set_refused(turnover_.refused() + 1);
  return false;
}

template <typename F>
void SparseShard::ForRows(const std::vector<uint64_t>& keys, size_t floats, F update) {
  const uint64_t step = ScheduleStep();
  const uint64_t live_from = LiveFrom();
  AdvanceAges(live_from);
  size_t created = 0;
  store_.VisitRows(keys.data(), keys.size(), floats,
                   [&](size_t i, RowStore::Row row) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                     const bool begins = row.header == nullptr || Expired(*row.header, live_from);
                     if (begins) {
                       if (row.header != nullptr) Expire(*row.header);
                       if (!MayBegin(keys[i])) return;
                       row = RowOf(keys[i]);
                       ++created;
                     }
                     cuts_.BeforeUpdate(row);
                     Touch(row.header, step, begins);
                     update(i, row);
                   });
  // In proportion to what takes memory, so that the sweep keeps up with it, and to the update, so
  // that it costs little beside it.
  Sweep(kLeastSwept + keys.size() / 8 + 16 * created);
}

RowStore::Row SparseShard::RowOf(uint64_t key) {
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
  row.header->version = cuts_.version_of_new_rows();
  table_->InitialRow(key, row.weights);
  InitState(row);
  turnover_.set_admitted(turnover_.admitted() + 1);
  return row;
}

void SparseShard::CheckMaxRows() {
  // Expired rows do not count. Sweep returns their memory a bounded amount at a time.
  if (evicts_ || LiveRows() < most_rows_) return;
  // ages_ still counts rows that expired within its present interval, or that came with a step that
  // was still ahead. Find all of them, once in a step at most: what this leaves is live, so the
  // next time in this step fails the job.
  const uint64_t live_from = LiveFrom();
  for (uint32_t id = 0; live_from > 0 && id < store_.slots(); ++id) SweepSlot(id, live_from);
  if (LiveRows() < most_rows_) return;
  const TableConfig& config = table_->config();
  const char* const limit = config.max_rows() > 0 ? "max_rows" : "max_gib";
  throw NoRoom(absl::StrCat(
      "table '", table_->name(), "' has reached its ", limit, ", ",
      config.max_rows() > 0 ? absl::StrCat(config.max_rows()) : absl::StrCat(config.max_gib()),
      ": shard ", index_, " of ", table_->num_shards(), " has ", LiveRows(),
      " rows, its share, and needs another; raise ", limit, " of the table, let it drop rows ",
      "(evict), or give its features fewer values, e.g. with hash_buckets"));
}

void SparseShard::EndUpdate() {
  if (admission_ != nullptr) admission_->sketch()->Age();
  if (evicts_ && store_.size() > most_rows_) Evict();
}

void SparseShard::Evict() {
  const uint64_t step = ScheduleStep(), live_from = LiveFrom();
  if (step < evicted_before_) return;
  std::function<uint32_t(uint64_t)> days_since;
  if (!days_.empty()) {
    days_since = [this](uint64_t seen) ABSL_NO_THREAD_SAFETY_ANALYSIS {
      return static_cast<uint32_t>(days_.today() - days_.DayOf(seen));
    };
  }
  const EvictionOrder order(table_->config().evict(), dim_, std::move(days_since));
  // Rows that are gone, but which the cut still reads.
  std::vector<uint32_t> gone = cuts_.erased(), expired;
  std::sort(gone.begin(), gone.end());
  std::vector<EvictionCandidate> rows;
  rows.reserve(store_.size());
  for (uint32_t id = 0; id < store_.slots(); ++id) {
    const RowStore::Row row = store_.row(id);
    if (store_.is_free(id) || row.header->last_seen >= step) continue;
    if (!gone.empty() && std::binary_search(gone.begin(), gone.end(), id)) continue;
    if (Expired(*row.header, live_from)) {
      expired.push_back(id);
      continue;
    }
    rows.push_back(
        order.Of({row.header->key, row.header->count, row.header->last_seen, row.weights}, id));
  }
  // They do not count, whether or not the sweep has reached them.
  for (const uint32_t id : expired) Expire(*store_.header(id));
  if (store_.size() <= most_rows_) return;
  const size_t n = std::min<size_t>(rows.size(), store_.size() - RowsAfterEviction(most_rows_));
  MoveFirstToLeave(n, &rows);
  for (size_t i = 0; i < n; ++i) EraseRow(store_.header(rows[i].row)->key, RowEnd::kEvicted, step);
  if (n == rows.size()) evicted_before_ = step + 1;
}

NoRoom SparseShard::NoMemory() const {
  return NoRoom(absl::StrCat(
      "no memory for another row of table '", table_->name(), "': ", store_.MemoryFigures(),
      ", and shard ", index_, " of ", table_->num_shards(), " has ", store_.size(),
      " rows; use more pservers or a machine with more memory, or limit the table's rows "
      "(max_rows, or hash_buckets of its features)"));
}

RowStore::Row SparseShard::NewRow(uint64_t key) {
  CheckMaxRows();
  if (!store_.MakeRoom()) throw NoMemory();
  bool created;
  const RowStore::Row row = store_.row(store_.FindOrInsert(key, &created));
  if (created) InitState(row);
  return row;
}

uint64_t SparseShard::LiveRows() const {
  return store_.size() - std::min<uint64_t>(ages_.expired(), store_.size());
}

uint64_t SparseShard::LiveFrom() const {
  return expiry_.on() ? expiry_.LiveFrom(ScheduleStep(), days_) : 0;
}

void SparseShard::Expire(const RowStore::Header& row) {
  EraseRow(row.key, RowEnd::kExpired, expiry_.EndOf(row.last_seen, days_));
}

void SparseShard::SweepSlot(uint32_t id, uint64_t live_from) {
  if (store_.is_free(id)) return;
  const RowStore::Header& row = *store_.header(id);
  if (Expired(row, live_from) && !cuts_.WasErased(id)) Expire(row);
}

void SparseShard::Sweep(size_t slots) {
  constexpr size_t kAhead = 8;
  const uint64_t live_from = LiveFrom();
  for (; slots > 0 && ages_.expired() > 0; --slots) {
    if (sweep_at_ >= store_.slots()) sweep_at_ = 0;
    const auto id = static_cast<uint32_t>(sweep_at_++);
    if (sweep_at_ + kAhead < store_.slots())
      __builtin_prefetch(store_.header(static_cast<uint32_t>(sweep_at_ + kAhead)));
    SweepSlot(id, live_from);
  }
}

void SparseShard::AdvanceAges(uint64_t live_from) {
  if (!expiry_.on()) return;
  if (counted_) return ages_.Advance(live_from);
  ages_.Clear(live_from);
  for (uint32_t id = 0; id < store_.slots(); ++id) {
    const RowStore::Header& row = *store_.header(id);
    if (!store_.is_free(id) && expiry_.Expires(row.count) && !cuts_.WasErased(id))
      ages_.Add(row.last_seen);
  }
  counted_ = true;
}

void SparseShard::Touch(RowStore::Header* row, uint64_t step, bool created) {
  const uint64_t last_seen = row->last_seen;
  const bool counted = !created && expiry_.Expires(row->count);
  row->last_seen = step;
  row->CountUpdate();
  if (!expiry_.on()) return;
  const bool counts = expiry_.Expires(row->count);
  if (counted && counts) {
    ages_.Move(last_seen, step);
  } else if (counted) {
    ages_.Remove(last_seen);
  } else if (counts) {
    ages_.Add(step);
  }
}

bool SparseShard::EraseRow(uint64_t key, RowEnd why, uint64_t step) {
  cuts_.MakeRoomToErase();  // what may throw comes first
  uint32_t id;
  store_.Find(&key, 1, &id);
  if (id == RowStore::kNoRow) return false;
  if (policy_.keeps_tombstones) tombstones_.Add(key, step);
  store_.Unlink(key);
  const RowStore::Header& row = *store_.header(id);
  if (counted_ && expiry_.Expires(row.count)) ages_.Remove(row.last_seen);
  switch (why) {
    case RowEnd::kExpired:
      turnover_.set_expired(turnover_.expired() + 1);
      break;
    case RowEnd::kEvicted:
      turnover_.set_evicted(turnover_.evicted() + 1);
      break;
    case RowEnd::kDeleted:
      turnover_.set_deleted(turnover_.deleted() + 1);
      break;
  }
  cuts_.Free(id);
  return true;
}

uint64_t SparseShard::DeleteRows(const uint64_t* keys, size_t n) {
  MutexLock lock(&mutex_);
  // Before the rows go, in the same critical section: the follower erases at the same place.
  if (log_ != nullptr) log_->AddErasure(table_->id(), index_, keys, n);
  const uint64_t step = ScheduleStep(), live_from = LiveFrom();
  uint64_t deleted = 0;
  try {
    for (size_t i = 0; i < n; ++i) {
      uint32_t id;
      store_.Find(&keys[i], 1, &id);
      if (id == RowStore::kNoRow) continue;
      // Nobody could read it any more, and how far the sweep has come must change no count.
      if (Expired(*store_.header(id), live_from)) {
        Expire(*store_.header(id));
      } else {
        deleted += EraseRow(keys[i], RowEnd::kDeleted, step);
      }
    }
  } catch (const std::bad_alloc&) {
    // The follower would erase rows that are still here.
    if (log_ != nullptr) log_->FailWithoutMemory();
    throw;
  }
  return deleted;
}

void SparseShard::InitState(const RowStore::Row& row) const {
  for (const TableLayout::Column& column : table_->columns()) {
    float* arrays[UpdateRule::kMaxState];
    StateArrays(column, row, arrays);
    column.rule->InitState(arrays, column.dim);
  }
}

template <typename F>
void SparseShard::FillRows(const uint64_t* keys, size_t n, F fill) {
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
  counted_ = false;
}

void SparseShard::StateArrays(const TableLayout::Column& column, const RowStore::Row& row,
                              float** arrays) {
  for (int k = 0; k < column.rule->state_floats(); ++k) {
    arrays[k] = row.state + column.state_begin + k * column.dim;
  }
}

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
