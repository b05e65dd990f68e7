// Decides which gradients of dense tables the workers exchange together.
//
// Buckets leave one after the other, so a table holds up all later buckets until its gradient is
// final. Backward makes the large gradients, those of hidden layers' weights, from the last table
// to the first: they come first, in that order. Gradients of small tables, such as biases, may be
// final only at the end of a step, so they travel in buckets of their own, at the end.
//
// The first bucket is small: it leaves early, and the exchange begins while backward still has most
// of its work.
//
// The plan depends on the arguments alone, so all ranks have the same one.
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
// Gradients of fewer bytes that travel are small.
inline constexpr uint64_t kLargeGradientBytes = 64 << 10;

// `gradients`: by table. Large and small gradients are in different buckets, the large ones first.
// A bucket holds gradients of one wire form, at most `max_bytes` that travel (the first one at most
// kFirstBucketBytes) and at most `max_tables` tables, but at least one table.
// REQUIRES: max_tables > 0.
std::vector<GradientBucket> PlanGradientBuckets(const std::vector<GradientSize>& gradients,
                                                uint64_t max_bytes, size_t max_tables);

}  // namespace sluice
