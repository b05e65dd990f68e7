// A sparse shard: rows by key, created by the first push that is applied to them, until they are
// erased.
//
// RowCuts keeps what the newest cut needs of rows that change or go.
//
// A row that has expired (RowExpiry) is treated as missing everywhere. Its slot is freed later, by
// Sweep, or when its key comes back. How far the sweep has come changes no result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "common/table/row_days.h"
#include "common/table/row_expiry.h"
#include "server/shards/admission_sketch.h"
#include "server/shards/age_histogram.h"
#include "server/shards/no_room.h"
#include "server/shards/row_cuts.h"
#include "server/shards/row_store.h"
#include "server/shards/row_tombstones.h"
#include "server/shards/shard.h"

namespace sluice {

class SparseShard : public Shard {
 public:
  SparseShard(std::shared_ptr<const TableLayout> table, uint32_t index, const UpdatePolicy& policy,
              const ShardLimits& limits);

  PartStatus Decode(uint32_t rows, PayloadReader* payload, PushPart* part) const override;
  void Read(const uint64_t* keys, size_t n, uint8_t* to) override;
  void LoadRows(const uint64_t* keys, const char* const* weights, size_t n) override;
  void RestoreRows(const uint64_t* keys, const char* const* records, size_t n) override;
  void RestorePosition(const ShardFacts& facts) override;

  // Expired rows are left out, but for those that expired within the last 500th part of
  // after_steps.
  uint64_t rows() override;
  uint64_t bytes() override;
  uint64_t reserved_bytes() override;
  RowTurnover turnover() override;
  uint64_t DeleteRows(const uint64_t* keys, size_t n) override;
  void DropTombstones(uint64_t before) override;
  absl::Status NamesGoneSince(uint64_t since) override;

 protected:
  std::unique_ptr<ShardCut> MakeCut(CutState state, const CutOptions& options) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyGradient(PushPart* part, double weight) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplyMean(const std::vector<Pending*>& parts, double total) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddToSum(const PushPart& part, double weight) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ApplySum(double total) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  HeldSum SumNow() const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool SetSum(HeldSum sum) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddDelta(const PushPart& part) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AddFacts(ShardFacts* facts) const override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EndUpdate() override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

 private:
  // Why a row goes.
  enum class RowEnd { kExpired, kEvicted, kDeleted };

  // gradient_of(i) returns the gradient [dim] of keys[i]. It is called once per key, in order.
  template <typename F>
  void Update(const std::vector<uint64_t>& keys, F gradient_of)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Adds the keys without a row to the sketch of a table with admit. Call it before ForRows with
  // the same keys, so that each of them meets the counts of all.
  void CountForAdmission(const std::vector<uint64_t>& keys) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Whether a key without a row gets one with this update. Counts a refusal.
  bool MayBegin(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls update(i, row of keys[i]) for each key that has a row or gets one, its header brought up
  // to date. `floats` of the row are fetched ahead.
  template <typename F>
  void ForRows(const std::vector<uint64_t>& keys, size_t floats, F update)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Calls fill(i, row of keys[i]) for each key, its row created with fresh state.
  template <typename F>
  void FillRows(const uint64_t* keys, size_t n, F fill);
  // Throws NotFiniteChange, which names the first of these keys whose row has a value that is not
  // finite.
  void RefuseValues(const std::vector<uint64_t>& keys) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Erases a row that has expired.
  void Expire(const RowStore::Header& row) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Expired(const RowStore::Header& row, uint64_t live_from) const {
    return expiry_.Expired(row.last_seen, row.count, live_from);
  }
  // The rows that have not expired, as far as ages_ knows.
  uint64_t LiveRows() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // RowExpiry::LiveFrom now.
  uint64_t LiveFrom() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Erases the row of the slot if it has expired.
  void SweepSlot(uint32_t id, uint64_t live_from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Erases the expired rows among the next `slots` slots, going round. Does nothing when there are
  // none, as far as ages_ knows.
  void Sweep(size_t slots) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Brings ages_ up to date with the schedule. O(1) amortized, O(slots) after rows were loaded.
  void AdvanceAges(uint64_t live_from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Notes an update in the row's header and in ages_.
  void Touch(RowStore::Header* row, uint64_t step, bool created)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // Returns the row of `key`, which is created if needed.
  RowStore::Row RowOf(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Inserts a row with fresh optimizer state; the caller writes the weights. An existing row is
  // returned unchanged.
  RowStore::Row NewRow(uint64_t key) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InitState(const RowStore::Row& row) const;
  // Ends the row of `key` at schedule step `step`: unlinks its key, counts it in the turnover and,
  // if the job exports, keeps a tombstone. False: there is none. Allowed while rows are visited
  // (RowStore::VisitRows), but not for the row of the present visit. Throws bad_alloc, changing
  // nothing.
  bool EraseRow(uint64_t key, RowEnd why, uint64_t step) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // NamesGoneSince.
  absl::Status CheckGone(uint64_t since) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The keys without a row whose rows went since an export at schedule step `since`; and maybe
  // others without a row. RESOURCE_EXHAUSTED: CheckGone.
  absl::Status ListGone(uint64_t since, std::vector<uint64_t>* gone) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Drops rows until the shard has 95 % of the rows that it may have. Throws bad_alloc.
  void Evict() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Call before a row is inserted, and after AdvanceAges. Throws NoRoom when there are most_rows_
  // rows that have not expired, whatever the sweep has done.
  void CheckMaxRows() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The error when RowMemory refuses a row.
  NoRoom NoMemory() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static void StateArrays(const TableLayout::Column& column, const RowStore::Row& row,
                          float** arrays);

  const uint32_t dim_;
  const uint64_t most_rows_;
  const bool evicts_;  // above most_rows_, instead of refusing a row
  const RowExpiry expiry_;
  const uint32_t kept_days_;  // how far back someone may ask for a day
  RowStore store_ ABSL_GUARDED_BY(mutex_);
  bool no_memory_ ABSL_GUARDED_BY(mutex_) = false;  // an insertion was cut short
  RowCuts cuts_ ABSL_GUARDED_BY(mutex_);
  RowDays days_ ABSL_GUARDED_BY(mutex_);         // empty unless the table may ask for them
  size_t sweep_at_ ABSL_GUARDED_BY(mutex_) = 0;  // the next slot that Sweep looks at
  // The rows that may expire. Empty without expire, and until counted_: while rows are loaded.
  AgeHistogram ages_ ABSL_GUARDED_BY(mutex_);
  bool counted_ ABSL_GUARDED_BY(mutex_) = false;
  bool loaded_values_ ABSL_GUARDED_BY(mutex_) = false;  // rows came without a history
  // Of a table with admit; else null.
  const std::unique_ptr<AdmissionRule> admission_ ABSL_PT_GUARDED_BY(mutex_);
  // The shard has no rows of earlier steps than this one that it could drop.
  uint64_t evicted_before_ ABSL_GUARDED_BY(mutex_) = 0;
  RowTurnover turnover_ ABSL_GUARDED_BY(mutex_);
  RowTombstones tombstones_ ABSL_GUARDED_BY(mutex_);  // empty unless the job exports
  SparseGradientSum sum_ ABSL_GUARDED_BY(mutex_);
  SparseGradientMean mean_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
