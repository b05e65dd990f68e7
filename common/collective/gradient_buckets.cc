#include "common/collective/gradient_buckets.h"

#include <algorithm>

namespace sluice {
namespace {

bool IsLarge(const GradientSize& gradient) {
  return gradient.elements * gradient.wire_bytes >= kLargeGradientBytes;
}

// Appends the buckets of the gradients that are large, or of those that are not.
void AddBuckets(const std::vector<GradientSize>& gradients, bool large, uint64_t max_bytes,
                size_t max_tables, std::vector<GradientBucket>* buckets) {
  const size_t before = buckets->size();
  for (size_t i = gradients.size(); i-- > 0;) {
    const GradientSize& gradient = gradients[i];
    if (IsLarge(gradient) != large) continue;
    const uint64_t most = buckets->size() <= 1 ? std::min(max_bytes, kFirstBucketBytes) : max_bytes;
    if (buckets->size() == before || buckets->back().wire_bytes != gradient.wire_bytes ||
        buckets->back().tables.size() >= max_tables ||
        (buckets->back().elements + gradient.elements) * gradient.wire_bytes > most) {
      buckets->emplace_back();
      buckets->back().wire_bytes = gradient.wire_bytes;
    }
    buckets->back().tables.push_back(i);
    buckets->back().elements += gradient.elements;
  }
}

}  // namespace

std::vector<GradientBucket> PlanGradientBuckets(const std::vector<GradientSize>& gradients,
                                                uint64_t max_bytes, size_t max_tables) {
  std::vector<GradientBucket> buckets;
  AddBuckets(gradients, /*large=*/true, max_bytes, max_tables, &buckets);
  AddBuckets(gradients, /*large=*/false, max_bytes, max_tables, &buckets);
  return buckets;
}

}  // namespace sluice
