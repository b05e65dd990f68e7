#include "common/collective/gradient_buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

std::vector<std::vector<size_t>> TablesOf(const std::vector<GradientBucket>& buckets) {
  std::vector<std::vector<size_t>> tables;
  for (const GradientBucket& bucket : buckets) tables.push_back(bucket.tables);
  return tables;
}

std::vector<GradientSize> InF32(const std::vector<uint64_t>& elements) {
  std::vector<GradientSize> sizes;
  for (const uint64_t n : elements) sizes.push_back({n, 4});
  return sizes;
}

constexpr uint64_t kMiB = 1 << 20;
constexpr uint64_t kQuarter = kMiB / 16;  // elements of 256 KiB

TEST(GradientBucketsTest, TablesFollowInTheOrderOfBackward) {
  const auto buckets = PlanGradientBuckets(InF32({4, 3, 2}), 32 * kMiB, 20);
  EXPECT_THAT(TablesOf(buckets), ElementsAre(ElementsAre(2, 1, 0)));
  EXPECT_EQ(buckets[0].elements, 9u);
}

TEST(GradientBucketsTest, TheFirstBucketIsSmall) {
  const auto buckets =
      PlanGradientBuckets(InF32(std::vector<uint64_t>(10, kQuarter)), 32 * kMiB, 20);
  EXPECT_THAT(TablesOf(buckets),
              ElementsAre(ElementsAre(9, 8, 7, 6), ElementsAre(5, 4, 3, 2, 1, 0)));
}

TEST(GradientBucketsTest, ABucketHasAtMostItsBytes) {
  const auto buckets = PlanGradientBuckets(InF32(std::vector<uint64_t>(9, kQuarter)), kMiB / 2, 20);
  EXPECT_THAT(TablesOf(buckets), ElementsAre(ElementsAre(8, 7), ElementsAre(6, 5),
                                             ElementsAre(4, 3), ElementsAre(2, 1), ElementsAre(0)));
}

TEST(GradientBucketsTest, ABucketHasAtMostItsTables) {
  const auto buckets = PlanGradientBuckets(InF32(std::vector<uint64_t>(5, 1)), 32 * kMiB, 2);
  EXPECT_THAT(TablesOf(buckets), ElementsAre(ElementsAre(4, 3), ElementsAre(2, 1), ElementsAre(0)));
}

TEST(GradientBucketsTest, SmallTablesHoldUpNoLargeOnes) {
  // Weights and biases of three layers, of which the last has one unit.
  const auto buckets = PlanGradientBuckets(
      InF32({kQuarter, 400, 3 * kQuarter, 400, 3 * kQuarter, 400, 400, 1}), 32 * kMiB, 20);
  EXPECT_THAT(TablesOf(buckets),
              ElementsAre(ElementsAre(4), ElementsAre(2, 0), ElementsAre(7, 6, 5, 3, 1)));
}

TEST(GradientBucketsTest, TablesAreLargeFrom64KiBThatTravel) {
  const auto buckets =
      PlanGradientBuckets({{16384, 4}, {16384, 2}, {16383, 4}, {32768, 2}}, 32 * kMiB, 20);
  EXPECT_THAT(TablesOf(buckets),
              ElementsAre(ElementsAre(3), ElementsAre(0), ElementsAre(2), ElementsAre(1)));
}

TEST(GradientBucketsTest, ATableAboveTheLimitHasABucketOfItsOwn) {
  const auto buckets = PlanGradientBuckets(InF32({kQuarter, 100 * kQuarter, kQuarter}), kMiB, 20);
  EXPECT_THAT(TablesOf(buckets), ElementsAre(ElementsAre(2), ElementsAre(1), ElementsAre(0)));
  EXPECT_EQ(buckets[1].elements, 100 * kQuarter);
}

TEST(GradientBucketsTest, ABucketHasOneWireForm) {
  const auto buckets = PlanGradientBuckets({{1, 4}, {1, 2}, {1, 2}, {1, 4}}, 32 * kMiB, 20);
  EXPECT_THAT(TablesOf(buckets), ElementsAre(ElementsAre(3), ElementsAre(2, 1), ElementsAre(0)));
  EXPECT_EQ(buckets[0].wire_bytes, 4u);
  EXPECT_EQ(buckets[1].wire_bytes, 2u);
}

TEST(GradientBucketsTest, BytesAreThoseThatTravel) {
  const std::vector<GradientSize> halves(8, {kQuarter, 2});
  EXPECT_THAT(TablesOf(PlanGradientBuckets(halves, 32 * kMiB, 20)),
              ElementsAre(ElementsAre(7, 6, 5, 4, 3, 2, 1, 0)));
}

TEST(GradientBucketsTest, NoTablesNeedNoBuckets) {
  EXPECT_TRUE(PlanGradientBuckets({}, 32 * kMiB, 20).empty());
}

}  // namespace
}  // namespace sluice
