#include "server/gradient_sum.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice {
namespace {

TEST(GradientSumTest, DenseMeanIsWeightedAndRoundedOnce) {
  DenseGradientSum sum;
  const float a[] = {1.0f, 1e8f}, b[] = {4.0f, 1.0f}, c[] = {0.0f, -1e8f};
  sum.Add(a, 2, 2);
  sum.Add(b, 2, 1);
  sum.Add(c, 2, 2);
  float mean[2];
  sum.Mean(5, mean);
  EXPECT_EQ(mean[0], 6.0f / 5.0f);
  EXPECT_EQ(mean[1], 0.2f);  // lost if summed in float
}

TEST(GradientSumTest, SparseDenominatorCountsThoseWithoutTheRow) {
  SparseGradientSum sum(2);
  const uint64_t first[] = {7, 9}, second[] = {9};
  const float g1[] = {1, 2, 3, 4}, g2[] = {10, 20};
  sum.Add(first, 2, g1, 3);
  sum.Add(second, 1, g2, 1);
  ASSERT_EQ(sum.keys(), (std::vector<uint64_t>{7, 9}));
  float mean[4];
  sum.Mean(8, mean);
  EXPECT_EQ(mean[0], 3.0f / 8);
  EXPECT_EQ(mean[1], 6.0f / 8);
  EXPECT_EQ(mean[2], 19.0f / 8);
  EXPECT_EQ(mean[3], 32.0f / 8);
  sum.Clear();
  EXPECT_TRUE(sum.keys().empty());
}

TEST(GradientSumTest, RowsOfWeightZeroHaveZeroGradient) {
  SparseGradientSum sum(1);
  const uint64_t key = 3;
  const float g = 5;
  sum.Add(&key, 1, &g, 0);
  float mean = NAN;
  sum.Mean(0, &mean);
  EXPECT_EQ(mean, 0.0f);
}

}  // namespace
}  // namespace sluice
