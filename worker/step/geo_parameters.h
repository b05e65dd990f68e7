// Tracks Geo's local parameters: which sparse rows this worker holds, and how fresh they are.
//
// It also tracks which rows have moved since the last exchange. GeoOptimizer holds the values, in
// the worker's memory or where the network computes.
//
// Invariants:
// - A row is fresh if it was pulled or updated since the last Merge, or was part of that exchange;
//   otherwise it is stale.
// - A stale row has local == base and is not in updated_.
// - A slot belongs to one key or is in free_.
//
// Age: suppose that the server's value of a row was requested after p steps, by its pull or by the
// last send that included it. In this worker's step t (from 0), the row is then t - p steps old.
//
// Memory: a row costs its values, 40 bytes and an index entry. Slots of evicted rows are used
// again. Only growth and eviction allocate.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client/key_set.h"
#include "client/parameter_client.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "worker/step/geo_state_file.h"
#include "worker/step/host_geo_optimizer.h"

namespace sluice {

class GeoParameters {
 public:
  // `sparse` may be null. Layouts outlive GeoParameters. At most `max_rows` rows stay after an
  // exchange, in addition to those with unsent moves. `values` holds the values of these tables
  // where the network computes; null: GeoParameters keeps them in the worker's memory.
  GeoParameters(std::vector<const TableLayout*> dense, const TableLayout* sparse, uint64_t max_rows,
                std::unique_ptr<GeoOptimizer> values = nullptr);

  // Null when the values are in the worker's memory. A step then reads dense(i) and the rows that
  // Gather copies.
  const GeoOptimizer* device() const { return host_ == nullptr ? optimizer_.get() : nullptr; }

  // Sets the values of the dense tables, pulled before the first step: by table, [elements].
  absl::Status SetDense(const std::vector<const float*>& values) {
    return optimizer_->SetDense(values);
  }
  const float* dense(size_t i) const { return host_->dense(i); }

  // The slots of some keys; valid until the next Merge.
  struct Rows {
    std::vector<uint32_t> slots;   // [keys]
    std::vector<uint32_t> pulled;  // positions of the keys whose rows are missing or stale
    KeySet missing;                // these keys, grouped by shard as the keys are
    uint64_t steps_made = 0;       // steps made when they were found
  };
  // Looks up the rows of `keys`. The pull of the missing rows must start right after it.
  void Find(const KeySet& keys, Rows* found) const;
  // Makes the pulled values [found->missing.keys][dim] local and base. RESOURCE_EXHAUSTED when the
  // device has no room.
  absl::Status Fill(Rows* found, const float* values);
  // Counts a step that uses these rows (all fresh), whether it updates them or not. Returns how old
  // they are; misses are the rows that were pulled for the step.
  HotRowUse Use(const Rows& found);
  // Copies the local values (all fresh) to [rows][dim].
  void Gather(const Rows& found, float* values) const {
    host_->GatherRows(found.slots.data(), found.slots.size(), values);
  }

  // Makes one local update of the rows and of all dense tables. `schedule_step` is the worker's own
  // step, from 0. Gradients are [rows][dim] and by dense table; a device uses those that its last
  // step left there.
  absl::Status Update(const Rows& found, const float* rows, std::vector<const float*> dense,
                      uint64_t schedule_step);

  // Takes local - base of everything updated since the last exchange: keys grouped by shard, rows
  // [keys][dim], and all dense tables.
  absl::Status TakeDelta(KeySet* keys, std::vector<float>* rows,
                         std::vector<std::vector<float>>* dense);
  // Merges the server's values for the rows and tables of the last TakeDelta, whose deltas are
  // `sent_*`: base = server, local = server + moves made since TakeDelta. Rows neither sent nor
  // moved since become stale. Evicts the least recently used rows beyond max_rows.
  absl::Status Merge(std::vector<float>* sent_rows, std::vector<float>* server_rows,
                     std::vector<std::vector<float>>* sent_dense,
                     std::vector<std::vector<float>>* server_dense);

  // Write and read what a checkpoint keeps of the local optimizer: its state and update counts.
  // The values come from the pservers again, so restored rows are stale. Call RestoreState before
  // the first Find. DATA_LOSS when the file does not fit these tables.
  absl::Status SaveState(GeoStateWriter* to) const;
  absl::Status RestoreState(GeoStateReader* from);

  uint64_t rows() const { return index_.size(); }

 private:
  struct RowInfo {
    uint64_t key = 0;
    uint32_t fresh = 0;      // interval of its value; stale when it is not interval_
    bool updated = false;    // since the last TakeDelta: it is in updated_
    bool taken = false;      // belongs to a key
    uint64_t asked_at = 0;   // steps made when the server's value was asked for
    uint64_t last_used = 0;  // schedule step
    uint64_t count = 0;      // updates
  };
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  // Floats of optimizer state of dense table i, of all its elements, and of a row.
  uint64_t DenseStateFloats(size_t i) const;
  size_t row_state_floats() const { return sparse_ == nullptr ? 0 : sparse_->state_floats(); }
  absl::Status RestoreRows(uint64_t rows, GeoStateReader* from);
  uint32_t TakeSlot(uint64_t key);
  void Evict();

  const std::vector<const TableLayout*> dense_;
  const TableLayout* const sparse_;
  const uint64_t max_rows_;
  const size_t dim_;
  std::unique_ptr<GeoOptimizer> optimizer_;
  HostGeoOptimizer* host_ = nullptr;               // optimizer_, if in the worker's memory
  absl::flat_hash_map<uint64_t, uint32_t> index_;  // key -> slot
  std::vector<RowInfo> info_;                      // by slot
  std::vector<uint32_t> free_;                     // slots
  std::vector<uint32_t> updated_;                  // slots, since the last TakeDelta
  std::vector<uint32_t> sent_;  // slots of the last TakeDelta, in the order of its keys
  uint64_t dense_count_ = 0;    // updates of the dense tables
  uint64_t steps_made_ = 0;
  uint64_t sent_at_ = 0;   // steps made at the last TakeDelta
  uint32_t interval_ = 1;  // raised by every Merge
  KeyDeduplicator grouper_;
  // Scratch space of one call.
  std::vector<uint64_t> counts_, keys_;
  std::vector<uint32_t> slots_, positions_;
  std::vector<uint8_t> new_;
};

}  // namespace sluice
