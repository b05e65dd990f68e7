// The exchange of one step's gradients of dense tables between the ranks of a group.
//
//   1. Put      A gradient is final: it is checked and copied to its bucket (gradient_buckets.h). A
//               full bucket leaves, and the ranks reduce it while others are still computed.
//   2. PutRest  All gradients are final, and every bucket leaves.
//   3. Wait     Returns when every bucket holds the weighted mean over the ranks.
//   4. Clear    The next step begins, or the same one again.
//
// A bucket has the wire type of its tables (TableConfig.wire_type): with BF16, gradients and their
// means are rounded, and half of the bytes travel.
//
// Each bucket ends with one more value, 1: its mean tells whether any rank had examples.
//
// Invariants: buckets leave in the same order on all ranks. After a gradient that is not finite,
// none leaves.
//
// Memory: one gradient of every table.
//
// Thread safety: Put and PutRest are safe from any thread. The other methods are for one thread,
// while no other one puts gradients.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "common/collective/collective.h"
#include "common/collective/gradient_buckets.h"
#include "common/table/table_layout.h"

namespace sluice {

class GradientExchange {
 public:
  // `max_bytes` and `max_tables`: of a bucket. `collective` outlives this, and has left its group
  // before this is destroyed, so that no operation uses the buckets any more.
  GradientExchange(TableLayouts tables, Collective* collective, uint64_t max_bytes,
                   size_t max_tables);

  // Takes the gradient of table t, [elements], of global step `step`; null: zeros. `weight`: of
  // this rank. Does nothing if the step has the table's gradient already.
  void Put(uint64_t step, double weight, size_t t, const float* gradient);
  // The same for all tables at once. `gradients`: by table.
  void PutRest(uint64_t step, double weight, const std::vector<const float*>& gradients);
  // INVALID_ARGUMENT names a table whose gradient, or its mean over the ranks, is not finite. Other
  // errors are those of the collective. After an error the means are unspecified.
  // REQUIRES: PutRest was called.
  absl::Status Wait();
  // Begins the next step, or the same one in another group.
  // REQUIRES: no operation of the collective uses the gradients. None does after Wait, unless that
  // returned INVALID_ARGUMENT.
  void Clear();

  // The mean gradient of table t, [elements]; null: no rank had examples.
  const float* mean(size_t t) const;
  // All that the means are: the values of each bucket, [elements + 1].
  std::vector<absl::Span<float>> Arrays();

 private:
  struct Bucket {
    GradientBucket plan;
    std::vector<size_t> offsets;  // by plan.tables
    std::vector<float> values;    // [elements + 1]
    size_t missing = 0;           // tables of the step that are not in it yet
    Collective::Ticket ticket = 0;
  };
  struct Place {
    size_t bucket = 0, offset = 0;
  };

  void AddBucket(GradientBucket plan);
  void Copy(const float* gradient, size_t t) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Starts the exchange of the buckets that are full, in their order.
  void SendFull(uint64_t step, double weight) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckMeans(const Bucket& bucket) const;

  const TableLayouts tables_;
  Collective* const collective_;
  std::vector<Place> places_;  // by table

  // Orders the threads that put gradients. The means are read after Wait, without it.
  Mutex mutex_;
  std::vector<Bucket> buckets_;
  std::vector<bool> put_ ABSL_GUARDED_BY(mutex_);  // by table, in this step
  size_t sent_ ABSL_GUARDED_BY(mutex_) = 0;        // buckets of this step that have left
  absl::Status status_ ABSL_GUARDED_BY(mutex_);    // of this step's gradients
};

}  // namespace sluice
