// Geo's local parameters: which sparse rows this worker holds and in which slots, how fresh they
// are, what has moved since the last exchange. The numbers are behind GeoValues, in the worker's
// memory or where the network computes.
//
// Invariants: a row is fresh when it was pulled or updated since the last Merge, or part of that
// exchange, stale otherwise; a stale row has local == base and is not in updated_; a slot belongs
// to one key or is in free_.
// Age: a row is t - p steps old in this worker's step t (from 0) when the server's value under it
// was asked for after p steps: by its pull, or by the last send that it was part of.
// Memory: a row costs its values, 40 bytes and an index entry; slots of rows that left are used
// again. Only growth and eviction allocate. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "client/parameter_client.h"
#include "common/table/table_layout.h"
#include "proto/scheduler.pb.h"
#include "worker/host_geo_values.h"

namespace sluice {

class GeoStore {
 public:
  // `sparse` may be null. Layouts outlive the store. At most `max_rows` rows stay after an
  // exchange. `values`, of these tables, are where the network computes; null: in this memory.
  GeoStore(std::vector<const TableLayout*> dense, const TableLayout* sparse, uint64_t max_rows,
           std::unique_ptr<GeoValues> values = nullptr);

  // Null when the values are in this memory: then a step reads dense(i) and what Gather gives.
  const GeoValues* device() const { return host_ == nullptr ? values_.get() : nullptr; }

  // Values of the dense tables, pulled before the first step: by table, [elements].
  absl::Status SetDense(const std::vector<const float*>& values) {
    return values_->SetDense(values);
  }
  const float* dense(size_t i) const { return host_->dense(i); }

  // Where the rows of some keys are; good until the next Merge.
  struct Rows {
    std::vector<uint32_t> slots;   // [keys]
    std::vector<uint32_t> pulled;  // of which keys the rows are missing or stale
    KeySet missing;                // these, grouped by shard as the keys are
    uint64_t steps_made = 0;       // when they were found
  };
  // The pull of what is missing starts right after it.
  void Find(const KeySet& keys, Rows* found) const;
  // The pulled values [found->missing.keys][dim] become local and base. RESOURCE_EXHAUSTED when a
  // device has no room.
  absl::Status Fill(Rows* found, const float* values);
  // The next step uses these rows (all fresh), whether it updates them or not: how old they are;
  // misses are those that were pulled for it.
  HotRowUse Use(const Rows& found);
  // Local values (all fresh) to [rows][dim].
  void Gather(const Rows& found, float* values) const {
    host_->GatherRows(found.slots.data(), found.slots.size(), values);
  }

  // One local update of the rows and of all dense tables with the worker's own step
  // `schedule_step` (0 at the first). Gradients [rows][dim] and by dense table; on a device those
  // that the last step left there.
  absl::Status Update(const Rows& found, const float* rows, std::vector<const float*> dense,
                      uint64_t schedule_step);

  // What was updated since the last exchange, as local - base: rows grouped by shard, values
  // [keys][dim].
  absl::Status TakeDelta(KeySet* keys, std::vector<float>* rows,
                         std::vector<std::vector<float>>* dense);
  // The server's values of what the last TakeDelta gave, after the merge: base = server, local =
  // server + moves made since TakeDelta (of which `sent_*` were the deltas). Rows neither sent nor
  // moved become stale; the least recently used leave beyond max_rows.
  absl::Status Merge(std::vector<float>* sent_rows, std::vector<float>* server_rows,
                     std::vector<std::vector<float>>* sent_dense,
                     std::vector<std::vector<float>>* server_dense);

  uint64_t rows() const { return index_.size(); }

 private:
  struct RowInfo {
    uint64_t key = 0;
    uint32_t fresh = 0;     // exchange in which its value was taken; stale when not the current one
    bool updated = false;   // since the last TakeDelta: it is in updated_
    bool taken = false;     // by a key
    uint64_t asked_at = 0;  // steps made when the server's value was asked for
    uint64_t last_used = 0;  // schedule step
    uint64_t count = 0;      // updates
  };
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  uint32_t TakeSlot(uint64_t key);
  void Evict();

  const std::vector<const TableLayout*> dense_;
  const TableLayout* const sparse_;
  const uint64_t max_rows_;
  const size_t dim_;
  std::unique_ptr<GeoValues> values_;
  HostGeoValues* host_ = nullptr;                  // values_, when they are in this memory
  absl::flat_hash_map<uint64_t, uint32_t> index_;  // key -> slot
  std::vector<RowInfo> info_;                      // by slot
  std::vector<uint32_t> free_;                     // slots
  std::vector<uint32_t> updated_;                  // slots, since the last TakeDelta
  std::vector<uint32_t> sent_;  // of the last TakeDelta, in the order of its keys
  uint64_t dense_count_ = 0;    // updates of the dense tables
  uint64_t steps_made_ = 0;
  uint64_t sent_at_ = 0;  // steps made at the last TakeDelta
  uint32_t interval_ = 1;
  KeyDeduplicator grouper_;
  // Of one call.
  std::vector<uint64_t> counts_, keys_;
  std::vector<uint32_t> slots_, positions_;
  std::vector<uint8_t> new_;
};

}  // namespace sluice
