// One worker's cache of the hot rows of one sparse table (HotRowCacheConfig). It holds the values
// and tells each step which rows to pull.
//
// The values stay where the network computes if it can keep them, and in host memory otherwise.
//
// Order: HotRowIndex needs a Find for each step as its pull starts and a Use right before the step
// runs, both in the order of the steps.
//
// Memory: in host memory the cache grows with use up to its capacity.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/table/table_layout.h"
#include "worker/batches/pool.h"
#include "worker/context/job_context.h"
#include "worker/step/hot_row_index.h"

namespace sluice {

class HotRowCache {
 public:
  // Makes the caches of a job, by Model::sparse_tables(); empty when it has none.
  // RESOURCE_EXHAUSTED, naming field and table, when the device has no room for the rows. `context`
  // and its net outlive them.
  static absl::StatusOr<std::vector<std::unique_ptr<HotRowCache>>> CreateAll(
      const JobContext& context);

  // Finds which of its `keys` of this table the next step must pull. Null means all, because they
  // do not fit in the cache; rows of other tables are not concerned.
  std::shared_ptr<const HotRowIndex::Rows> Find(const KeySet& keys);
  // Called right before the next step runs. `found` is from its Find, rows->values has the pulled
  // values, [missing or all][dim]. Makes `rows` name the rows of all keys, valid until the next
  // call.
  absl::Status Use(const HotRowIndex::Rows* found, RowsInput* rows);
  // Forgets all rows: none is used in another epoch.
  void EndEpoch() { cache_.Forget(steps_run_); }

 private:
  HotRowCache(const JobContext& context, const TableLayout& table,
              std::unique_ptr<ResidentRows> resident);
  void LogHowItKeeps() const;
  // These serve values in host memory.
  void Write(const HotRowIndex::Rows& found, const float* pulled);
  void Gather(const std::vector<uint32_t>& slots);

  const JobContext& context_;
  const TableLayout& table_;
  const size_t dim_;
  const std::unique_ptr<ResidentRows> resident_;  // null: the values are in values_
  HotRowIndex cache_;
  Pool<HotRowIndex::Rows> pool_;
  uint64_t steps_found_ = 0, steps_run_ = 0;
  bool told_ = false;          // already logged that a batch did not fit
  std::vector<float> values_;  // [slots][dim]
  std::vector<float> rows_;    // [U][dim] of the running step
};

}  // namespace sluice
