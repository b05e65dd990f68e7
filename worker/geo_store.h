// Geo's local parameters: dense tables whole and the sparse rows this worker has touched, each with
// its base (the server's value at the last exchange) and optimizer state.
//
// Invariants: a row is fresh when it was pulled, exchanged or updated since the last exchange,
// stale otherwise; a stale row has local == base and is not in updated_rows_. Memory: a row costs
// (2 x dim + state) floats, its key, 24 bytes and an index entry. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "client/parameter_client.h"
#include "common/table/table_layout.h"

namespace sluice {

class GeoStore {
 public:
  // `sparse` may be null. Layouts outlive the store. At most `max_rows` rows stay after an
  // exchange.
  GeoStore(std::vector<const TableLayout*> dense, const TableLayout* sparse, uint64_t max_rows);

  // Dense table i: local values [elements], to be filled by a pull before the first step; then
  // SetDenseBase.
  float* dense(size_t i) { return dense_[i].local.data(); }
  const float* dense(size_t i) const { return dense_[i].local.data(); }
  void SetDenseBase();

  // Where the rows of some keys are; good until the next Merge.
  struct Rows {
    std::vector<uint32_t> rows;    // [keys]
    std::vector<uint32_t> pulled;  // of which keys the rows are missing or stale
    KeySet missing;                // these, grouped by shard as the keys are
  };
  void Find(const KeySet& keys, Rows* found) const;
  // The pulled values [found->missing.keys][dim] become local and base.
  void Fill(Rows* found, const float* values);
  // Local values (all fresh) to [rows][dim].
  void Gather(const Rows& found, float* values) const;

  // One local update, gradients [rows][dim], with the worker's own step `schedule_step` (0 at the
  // first).
  void UpdateRows(const Rows& found, const float* gradients, uint64_t schedule_step);
  void UpdateDense(size_t i, const float* gradient, uint64_t schedule_step);

  // What was updated since the last exchange, as local - base: rows grouped by shard, values
  // [keys][dim].
  void TakeDelta(KeySet* keys, std::vector<float>* rows, std::vector<std::vector<float>>* dense);
  // The server's values of what the last TakeDelta gave, after the merge: base = server, local =
  // server + moves made since TakeDelta (of which `sent_*` were the deltas). Rows neither sent nor
  // moved become stale; the least recently used leave beyond max_rows.
  void Merge(const std::vector<float>& sent_rows, const std::vector<float>& server_rows,
             const std::vector<std::vector<float>>& sent_dense,
             const std::vector<std::vector<float>>& server_dense);

  uint64_t rows() const { return index_.size(); }
  bool touched() const { return touched_; }

 private:
  struct Dense {
    const TableLayout* layout = nullptr;
    std::vector<float> local, base, state;  // state: state_floats arrays of [elements]
    uint64_t count = 0;
  };
  struct RowInfo {
    uint64_t key = 0;
    uint64_t fresh = 0;    // exchange in which its value was taken; stale when not the current one
    bool updated = false;  // since the last TakeDelta: it is in updated_rows_
    uint64_t last_used = 0;  // schedule step
    uint64_t count = 0;      // updates
  };
  static constexpr uint32_t kNoRow = UINT32_MAX;
  static constexpr size_t kAhead = 16;  // rows that are fetched before they are used
  void Prefetch(const std::vector<uint32_t>& rows, size_t i) const;
  float* local_row(uint32_t row) { return &values_[row * stride_]; }
  float* base_row(uint32_t row) { return &values_[row * stride_ + dim_]; }
  float* state_row(uint32_t row) { return &values_[row * stride_ + 2 * dim_]; }
  uint32_t AddRow(uint64_t key);
  void Evict();

  std::vector<Dense> dense_;
  const TableLayout* const sparse_;
  const uint64_t max_rows_;
  size_t dim_ = 0, stride_ = 0;
  absl::flat_hash_map<uint64_t, uint32_t> index_;
  std::vector<RowInfo> info_;
  std::vector<float> values_;           // [rows][local dim | base dim | state]
  std::vector<uint32_t> updated_rows_;  // since the last TakeDelta
  std::vector<uint32_t> sent_rows_;     // of the last TakeDelta, in the order of its keys
  uint64_t interval_ = 1;
  bool touched_ = false;
  KeyDeduplicator grouper_;
};

}  // namespace sluice
