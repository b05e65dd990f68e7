// The cache of hot rows of one worker (HotRowCacheConfig): which rows a step must pull, and the
// values of all its rows, kept where the network computes or else in host memory.
//
// Order: as HotRowCache asks: Find for each step as its pull starts, Use for each step right before
// it runs, both in the order of the steps. Memory: in host memory it grows with use up to the
// capacity. Thread safety: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/hot_row_cache.h"
#include "worker/job_context.h"
#include "worker/pool.h"

namespace sluice {

class HotRows {
 public:
  // Null when the job has no cache. RESOURCE_EXHAUSTED when the device has no room for its rows;
  // names the field. `context` and its net outlive it.
  static absl::StatusOr<std::unique_ptr<HotRows>> Create(const JobContext& context);

  // What the next step must pull of its `keys`. Null: all, since they do not fit in the cache.
  std::shared_ptr<const HotRowCache::Rows> Find(const KeySet& keys);
  // The next step runs: `found` by its Find, input->rows what was pulled, [missing or all][dim].
  // Makes `input` name the rows of all keys, good until the next call.
  absl::Status Use(const HotRowCache::Rows* found, NetInput* input);
  // No row is used in another epoch.
  void EndEpoch() { cache_.Forget(steps_run_); }

 private:
  HotRows(const JobContext& context, const HotRowCacheConfig& config,
          std::unique_ptr<ResidentRows> resident);
  void LogHowItKeeps() const;
  // In host memory.
  void Write(const HotRowCache::Rows& found, const float* pulled);
  void Gather(const std::vector<uint32_t>& slots);

  const JobContext& context_;
  const size_t dim_;
  const std::unique_ptr<ResidentRows> resident_;  // null: values_
  HotRowCache cache_;
  Pool<HotRowCache::Rows> pool_;
  uint64_t steps_found_ = 0, steps_run_ = 0;
  bool told_ = false;          // that a batch did not fit
  std::vector<float> values_;  // [slots][dim]
  std::vector<float> rows_;    // [U][dim] of the step that runs
};

}  // namespace sluice
