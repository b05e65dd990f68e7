#include "python/core/slot_columns.h"

#include <algorithm>
#include <cmath>

namespace sluice {
namespace {

// Whether all are finite. Finite numbers times 0 are 0, all others are NaN: a sum that the compiler
// can vectorize, which std::isfinite in a loop with an exit is not.
bool AllFinite(const float* values, size_t n) {
  constexpr size_t kLanes = 16;
  float sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += values[i + lane] * 0.0f;
  }
  for (; i < n; ++i) sums[0] += values[i] * 0.0f;
  return std::all_of(sums, sums + kLanes, [](float sum) { return sum == 0.0f; });
}

}  // namespace

void CopySlotRows(const float* table, const SlotColumns& at, float* to) {
  for (size_t i = 0; i < at.n; ++i, to += at.dim)
    std::copy_n(table + static_cast<size_t>(at.rows[i]) * at.row_dim + at.first, at.dim, to);
}

int64_t AddSlotGradients(const float* from, const SlotColumns& at, float* table) {
  if (!AllFinite(from, at.n * at.dim)) {
    const float* const bad =
        std::find_if(from, from + at.n * at.dim, [](float value) { return !std::isfinite(value); });
    return (bad - from) / static_cast<int64_t>(at.dim);
  }
  for (size_t i = 0; i < at.n; ++i, from += at.dim) {
    float* const row = table + static_cast<size_t>(at.rows[i]) * at.row_dim + at.first;
    for (size_t d = 0; d < at.dim; ++d) row[d] += from[d];
  }
  return -1;
}

}  // namespace sluice
