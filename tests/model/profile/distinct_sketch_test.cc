#include "model/profile/distinct_sketch.h"

#include <gmock/gmock.h>

#include <cmath>

#include "common/base/mix_hash.h"

namespace sluice {
namespace {

TEST(DistinctSketchTest, FewValuesAreCountedExactly) {
  DistinctSketch sketch;
  EXPECT_EQ(sketch.Count(), 0u);
  for (uint64_t i = 0; i < 5000; ++i) sketch.AddHash(MixHash(i % DistinctSketch::kExact));
  EXPECT_TRUE(sketch.exact());
  EXPECT_EQ(sketch.Count(), DistinctSketch::kExact);
}

TEST(DistinctSketchTest, ManyValuesAreWithinTheStatedError) {
  for (const uint64_t n : {1025u, 3000u, 20000u, 60000u, 300000u, 2000000u}) {
    DistinctSketch sketch;
    for (uint64_t i = 0; i < n; ++i) sketch.AddHash(MixHash(i + 77));
    const uint64_t once = sketch.Count();
    for (uint64_t i = 0; i < n; i += 3) sketch.AddHash(MixHash(i + 77));
    EXPECT_FALSE(sketch.exact());
    EXPECT_EQ(sketch.Count(), once) << "values that occur again count once";
    const double error = std::abs(static_cast<double>(once) / static_cast<double>(n) - 1);
    EXPECT_LE(error, 4 * DistinctSketch::kError) << n << " values: " << once;
  }
}

}  // namespace
}  // namespace sluice
