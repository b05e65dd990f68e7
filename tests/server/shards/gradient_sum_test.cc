#include "server/shards/gradient_sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

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

// Compares both ways to a dense mean with the definition, to the bit, also of a piece.
TEST(GradientSumTest, DenseMeansEqualTheDefinitionToTheBit) {
  std::mt19937_64 random(3);
  std::normal_distribution<float> normal(0, 1);
  constexpr size_t kN = 2500;
  const std::vector<double> weights = {100, 37, 0, 99.5};
  std::vector<std::vector<float>> gradients(weights.size(), std::vector<float>(kN));
  for (auto& gradient : gradients) {
    for (float& g : gradient) g = normal(random);
  }
  double total = 0;
  DenseGradientSum sum;
  std::vector<WeightedGradient> all;
  for (size_t w = 0; w < weights.size(); ++w) {
    total += weights[w];
    sum.Add(gradients[w].data(), kN, weights[w]);
    all.push_back({gradients[w].data(), weights[w]});
  }
  std::vector<float> expected(kN), mean(kN);
  for (size_t i = 0; i < kN; ++i) {
    double s = 0;
    for (size_t w = 0; w < weights.size(); ++w) {
      s += weights[w] * static_cast<double>(gradients[w][i]);
    }
    expected[i] = static_cast<float>(s / total);
  }
  sum.Mean(total, mean.data());
  EXPECT_EQ(mean, expected);
  WeightedMean(all, 0, kN, total, mean.data());
  EXPECT_EQ(mean, expected);
  WeightedMean(all, 100, kN - 100, total, mean.data());
  EXPECT_TRUE(std::equal(expected.begin() + 100, expected.end(), mean.begin()));
}

template <typename T>
class SparseMeanTest : public ::testing::Test {};
using Sparse = ::testing::Types<SparseGradientSum, SparseGradientMean>;
TYPED_TEST_SUITE(SparseMeanTest, Sparse);

TYPED_TEST(SparseMeanTest, DenominatorCountsFramesWithoutTheRow) {
  TypeParam sum(2);
  const uint64_t first[] = {7, 9}, second[] = {9};
  const float g1[] = {1, 2, 3, 4}, g2[] = {10, 20};
  sum.Add(first, 2, g1, 3);
  sum.Add(second, 1, g2, 1);
  ASSERT_EQ(sum.keys(), (std::vector<uint64_t>{7, 9}));
  float mean[4];
  sum.Mean(0, 8, mean);
  sum.Mean(1, 8, mean + 2);
  EXPECT_EQ(mean[0], 3.0f / 8);
  EXPECT_EQ(mean[1], 6.0f / 8);
  EXPECT_EQ(mean[2], 19.0f / 8);
  EXPECT_EQ(mean[3], 32.0f / 8);
  sum.Clear();
  EXPECT_TRUE(sum.keys().empty());
}

TYPED_TEST(SparseMeanTest, RowsOfWeightZeroHaveZeroGradient) {
  TypeParam sum(1);
  const uint64_t key = 3;
  const float g = 5;
  sum.Add(&key, 1, &g, 0);
  float mean = NAN;
  sum.Mean(0, 0, &mean);
  EXPECT_EQ(mean, 0.0f);
}

// Takes several steps on one object, with keys repeated within and across frames, and compares them
// with a map in double, to the bit.
TYPED_TEST(SparseMeanTest, EveryStepEqualsTheDefinitionToTheBit) {
  constexpr uint32_t kDim = 5;
  std::mt19937_64 random(5);
  std::normal_distribution<float> normal(0, 1);
  TypeParam sum(kDim);
  for (int step = 0; step < 6; ++step) {
    std::map<uint64_t, std::vector<double>> reference;
    std::vector<uint64_t> order;
    std::vector<std::vector<float>> frames;  // outlive the mean
    double total = 0;
    for (int rank = 0; rank < 3; ++rank) {
      std::vector<uint64_t> keys(random() % 700);
      for (uint64_t& key : keys) key = random() % 500;
      std::vector<float> gradients(keys.size() * kDim);
      for (float& g : gradients) g = normal(random);
      const double weight = static_cast<double>(1 + random() % 100);
      total += weight;
      frames.push_back(gradients);
      sum.Add(keys.data(), keys.size(), frames.back().data(), weight);
      for (size_t i = 0; i < keys.size(); ++i) {
        auto [at, added] = reference.try_emplace(keys[i], kDim, 0.0);
        if (added) order.push_back(keys[i]);
        for (uint32_t d = 0; d < kDim; ++d) {
          at->second[d] += weight * static_cast<double>(gradients[i * kDim + d]);
        }
      }
    }
    ASSERT_EQ(sum.keys(), order);
    for (size_t i = 0; i < order.size(); ++i) {
      float mean[kDim];
      sum.Mean(i, total, mean);
      for (uint32_t d = 0; d < kDim; ++d) {
        ASSERT_EQ(mean[d], static_cast<float>(reference[order[i]][d] / total));
      }
    }
    sum.Clear();
  }
}

// One large step must not keep its memory, and must not change later sums.
TEST(GradientSumTest, MemoryOfALargeStepIsFreedAfterASmallOne) {
  SparseGradientSum sum(2);
  SparseGradientMean mean(2);
  for (const size_t n : {10, 100'000, 10, 10}) {
    std::vector<uint64_t> keys(n);
    std::vector<float> gradients(2 * n, 3.0f);
    for (size_t i = 0; i < n; ++i) keys[i] = 7 * i;
    sum.Add(keys.data(), n, gradients.data(), 2);
    mean.Add(keys.data(), n, gradients.data(), 2);
    ASSERT_EQ(sum.keys().size(), n);
    float of_sum[2], of_mean[2];
    sum.Mean(n - 1, 2, of_sum);
    mean.Mean(n - 1, 2, of_mean);
    EXPECT_EQ(of_sum[1], 3.0f);
    EXPECT_EQ(of_mean[1], 3.0f);
    sum.Clear();
    mean.Clear();
  }
  EXPECT_LT(sum.keys().capacity(), 2000u);
  EXPECT_LT(sum.sums().capacity(), 2000u);
  EXPECT_LT(mean.keys().capacity(), 2000u);
}

}  // namespace
}  // namespace sluice
