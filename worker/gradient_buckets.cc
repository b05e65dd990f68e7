#include "worker/gradient_buckets.h"

#include <algorithm>

namespace sluice {

std::vector<GradientBucket> PlanGradientBuckets(const std::vector<uint64_t>& elements,
                                                uint64_t max_bytes, size_t max_tables) {
  std::vector<GradientBucket> buckets;
  for (size_t i = elements.size(); i-- > 0;) {
    const uint64_t most = buckets.size() <= 1 ? std::min(max_bytes, kFirstBucketBytes) : max_bytes;
    if (buckets.empty() || buckets.back().tables.size() >= max_tables ||
        (buckets.back().elements + elements[i]) * sizeof(float) > most) {
      buckets.emplace_back();
    }
    buckets.back().tables.push_back(i);
    buckets.back().elements += elements[i];
  }
  return buckets;
}

}  // namespace sluice
