// Tracks which rows of one sparse table a Geo worker holds, and how fresh they are.
//
// It also tracks which rows have moved since the last exchange. A GeoOptimizer holds the values of
// all tables, in the worker's memory or where the network computes.
//
// Invariants:
// - A row is fresh if it was pulled or updated since the last exchange was merged, or was part of
//   that exchange; otherwise it is stale.
// - A stale row has local == base and is not in updated_.
// - A slot belongs to one key or is in free_.
//
// Age: suppose that the server's value of a row was requested after p steps, by its pull or by the
// last send that included it. In this worker's step t (from 0), the row is then t - p steps old.
//
// Format of the state in a checkpoint (little-endian):
//
//   state := u64 floats of optimizer state of a row, u64 number of rows, row*
//   row   := u64 key, u64 schedule step of its last use, u64 updates, its f32 floats of state
//
// Memory: a row costs its values, 40 bytes and an index entry. Slots of evicted rows are used
// again. Only growth and eviction allocate.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client/key_set.h"
#include "common/table/table_layout.h"
#include "model/net/geo_optimizer.h"
#include "proto/scheduler.pb.h"
#include "worker/step/geo_state_file.h"

namespace sluice {

class GeoRows {
 public:
  // `table` is the index in Model::sparse_tables(). At most `max_rows` rows stay after an exchange,
  // in addition to those with unsent moves. `layout` and `values` outlive this.
  GeoRows(size_t table, const TableLayout* layout, uint64_t max_rows, GeoOptimizer* values);

  // The slots of some keys; valid until the next exchange ends.
  struct Found {
    std::vector<uint32_t> slots;   // [keys]
    std::vector<uint32_t> pulled;  // positions of the keys whose rows are missing or stale
    KeySet missing;                // these keys, grouped by shard as the keys are
    uint64_t steps_made = 0;       // steps made when they were found
  };
  // Looks up the rows of `keys`. The pull of the missing rows must start right after it.
  void Find(const KeySet& keys, Found* found) const;
  // Makes the pulled values [found->missing.keys][dim] local and base. RESOURCE_EXHAUSTED when the
  // device has no room.
  absl::Status Fill(Found* found, const float* values);
  // Counts a step that uses these rows (all fresh), whether it updates them or not. To be called
  // once for each step of the worker. Returns how old they are; misses are the rows that were
  // pulled for the step.
  HotRowUse Use(const Found& found);
  // Counts an update of these rows. The result is for GeoOptimizer::Update, without gradients, and
  // valid until the next call.
  GeoUpdate::Rows CountUpdate(const Found& found, uint64_t schedule_step);

  // Begins an exchange of all rows updated since the last one: their keys grouped by shard.
  void BeginExchange(KeySet* keys);
  // The rows of the last exchange, in the order of its keys; valid until the next one begins.
  GeoSlots sent() const { return {sent_.data(), sent_.size()}; }
  // To be called when the server's values of these rows are merged. Rows neither sent nor moved
  // since become stale. Evicts the least recently used rows beyond max_rows.
  void EndExchange();

  // Write and read what a checkpoint keeps of the local optimizer: its state and update counts.
  // The values come from the pservers again, so restored rows are stale. Call RestoreState before
  // the first Find. DATA_LOSS when the file does not fit the table.
  absl::Status SaveState(GeoStateWriter* to) const;
  absl::Status RestoreState(GeoStateReader* from);

  const TableLayout& layout() const { return *layout_; }
  uint64_t KeyOf(uint32_t slot) const { return info_[slot].key; }
  uint64_t size() const { return index_.size(); }

 private:
  struct RowInfo {
    uint64_t key = 0;
    uint32_t fresh = 0;      // interval of its value; stale when it is not interval_
    bool updated = false;    // since the last BeginExchange: it is in updated_
    bool taken = false;      // belongs to a key
    uint64_t asked_at = 0;   // steps made when the server's value was asked for
    uint64_t last_used = 0;  // schedule step
    uint64_t count = 0;      // updates
  };
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  // Rows whose state is copied at a time.
  size_t ChunkRows() const;
  uint32_t TakeSlot(uint64_t key);
  void Evict();

  size_t table_;
  const TableLayout* layout_;
  uint64_t max_rows_;
  GeoOptimizer* values_;
  absl::flat_hash_map<uint64_t, uint32_t> index_;  // key -> slot
  std::vector<RowInfo> info_;                      // by slot
  std::vector<uint32_t> free_;                     // slots
  std::vector<uint32_t> updated_;                  // slots, since the last BeginExchange
  std::vector<uint32_t> sent_;                     // slots of the last exchange
  uint64_t steps_made_ = 0;
  uint64_t sent_at_ = 0;   // steps made at the last BeginExchange
  uint32_t interval_ = 1;  // raised by every EndExchange
  KeyDeduplicator grouper_;
  // Scratch space of one call.
  std::vector<uint64_t> counts_, keys_;
  std::vector<uint32_t> slots_, positions_;
  std::vector<uint8_t> new_;
};

}  // namespace sluice
