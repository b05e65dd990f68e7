#include "worker/gradient_buckets.h"

#include <algorithm>

namespace sluice {

std::vector<GradientBucket> PlanGradientBuckets(const std::vector<GradientSize>& gradients,
                                                uint64_t max_bytes, size_t max_tables) {
  std::vector<GradientBucket> buckets;
  for (size_t i = gradients.size(); i-- > 0;) {
    const GradientSize& gradient = gradients[i];
    const uint64_t most = buckets.size() <= 1 ? std::min(max_bytes, kFirstBucketBytes) : max_bytes;
    if (buckets.empty() || buckets.back().wire_bytes != gradient.wire_bytes ||
        buckets.back().tables.size() >= max_tables ||
        (buckets.back().elements + gradient.elements) * gradient.wire_bytes > most) {
      buckets.emplace_back();
      buckets.back().wire_bytes = gradient.wire_bytes;
    }
    buckets.back().tables.push_back(i);
    buckets.back().elements += gradient.elements;
  }
  return buckets;
}

}  // namespace sluice
