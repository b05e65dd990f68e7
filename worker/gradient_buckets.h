// Decides which gradients of dense tables the workers exchange together.
//
// Backward makes the gradients from the last table to the first, so that is the order of the
// buckets. The first one is small: it leaves early, and the exchange begins while backward still
// has most of its work.
//
// Source: Li et al., "PyTorch Distributed: Experiences on Accelerating Data Parallel Training"
// (2020), section 3.2.3 (bucketing).
//
// Thread safety: a pure function.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice {

struct GradientSize {
  uint64_t elements = 0;
  uint32_t wire_bytes = 4;  // of an element that travels
};

struct GradientBucket {
  std::vector<size_t> tables;  // indices into the list of tables, the last one first
  uint64_t elements = 0;       // of all of them
  uint32_t wire_bytes = 4;     // the same for all of them
};

inline constexpr uint64_t kFirstBucketBytes = 1 << 20;

// `gradients`: by table. A bucket holds gradients of one wire form, at most `max_bytes` that travel
// (the first one at most kFirstBucketBytes) and at most `max_tables` tables, but at least one
// table.
// REQUIRES: max_tables > 0.
std::vector<GradientBucket> PlanGradientBuckets(const std::vector<GradientSize>& gradients,
                                                uint64_t max_bytes, size_t max_tables);

}  // namespace sluice
