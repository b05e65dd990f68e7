#include "model/data/permutation.h"

#include <cmath>
#include <unordered_set>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(PermutationTest, IsABijectionForEverySmallSize) {
  for (uint64_t n = 0; n <= 300; ++n) {
    for (uint64_t seed = 0; seed < 3; ++seed) {
      const Permutation permutation(n, seed);
      EXPECT_EQ(permutation.size(), n);
      std::vector<bool> seen(n);
      for (uint64_t i = 0; i < n; ++i) {
        const uint64_t to = permutation(i);
        ASSERT_LT(to, n);
        ASSERT_FALSE(seen[to]) << "n " << n << " seed " << seed << " i " << i;
        seen[to] = true;
      }
    }
  }
}

TEST(PermutationTest, StaysInsideAndInjectiveForBigSizes) {
  for (const uint64_t n :
       {uint64_t{1} << 20, (uint64_t{1} << 32) + 1, (uint64_t{1} << 62) + 1, UINT64_MAX}) {
    const Permutation permutation(n, 7);
    std::unordered_set<uint64_t> seen;
    for (uint64_t i = 0; i < 2000; ++i) {
      for (const uint64_t from : {i, n - 1 - i, n / 4000 * i + 4000}) {
        if (from >= n) continue;
        const uint64_t to = permutation(from);
        ASSERT_LT(to, n);
        seen.insert(to);
      }
    }
    EXPECT_EQ(seen.size(), 6000u) << n;
  }
}

TEST(PermutationTest, SeedsGiveDifferentOrders) {
  const Permutation a(1000, 1), b(1000, 2), a_again(1000, 1);
  int same = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    same += a(i) == b(i);
    EXPECT_EQ(a(i), a_again(i));
  }
  EXPECT_LT(same, 10);  // one is expected by chance
}

// Over many seeds, every element lands on every position equally often, by a chi-square test of
// each element's positions.
TEST(PermutationTest, PositionsAreUniform) {
  for (const uint64_t n : {5, 16, 37}) {
    constexpr int kSeeds = 8000;
    std::vector<std::vector<int>> counts(n, std::vector<int>(n));
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Permutation permutation(n, seed);
      for (uint64_t i = 0; i < n; ++i) ++counts[i][permutation(i)];
    }
    double chi = 0;
    const double expected = static_cast<double>(kSeeds) / n;
    for (const auto& row : counts) {
      for (const int count : row) chi += (count - expected) * (count - expected) / expected;
    }
    // (n - 1)^2 degrees of freedom; five standard deviations of the chi-square distribution.
    const double degrees = static_cast<double>((n - 1) * (n - 1));
    EXPECT_LT(chi, degrees + 5 * std::sqrt(2 * degrees)) << n;
    EXPECT_GT(chi, degrees - 5 * std::sqrt(2 * degrees)) << n;
  }
}

TEST(PermutationTest, GoldenOrderIsFrozen) {
  const Permutation permutation(10, 42);
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < 10; ++i) order.push_back(permutation(i));
  EXPECT_EQ(order, (std::vector<uint64_t>{9, 5, 6, 2, 0, 1, 7, 3, 4, 8}));
}

}  // namespace
}  // namespace sluice
