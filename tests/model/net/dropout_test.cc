#include "model/net/dropout.h"

#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(DropoutTest, ApplyAgreesWithKeep) {
  const Dropout dropout(0.3f, 9, 1);
  for (uint32_t n : {1u, 2u, 7u, 64u}) {
    std::vector<float> units(n, 1.0f);
    dropout.Apply(1234, 1, units.data(), n);
    for (uint32_t u = 0; u < n; ++u) {
      EXPECT_EQ(units[u], dropout.Keep(1234, 1, u) ? dropout.scale() : 0.0f) << n << " " << u;
    }
  }
}

TEST(DropoutTest, DropsTheRequestedFraction) {
  const Dropout dropout(0.25f, 9, 1);
  int dropped = 0;
  for (uint64_t id = 0; id < 1000; ++id) {
    for (uint32_t u = 0; u < 100; ++u) dropped += !dropout.Keep(id, 0, u);
  }
  EXPECT_NEAR(dropped, 25000, 700);  // 5 standard deviations
  EXPECT_FLOAT_EQ(dropout.scale(), 1 / 0.75f);
}

TEST(DropoutTest, MaskDependsOnEveryArgument) {
  // Fraction of units on which two masks of rate 1/2 agree: about half when they are independent.
  const auto agreement = [](const Dropout& a, uint64_t id_a, uint32_t layer_a, const Dropout& b,
                            uint64_t id_b, uint32_t layer_b) {
    int same = 0;
    for (uint32_t u = 0; u < 4000; ++u)
      same += a.Keep(id_a, layer_a, u) == b.Keep(id_b, layer_b, u);
    return same / 4000.0;
  };
  const Dropout d(0.5f, 9, 1), other_seed(0.5f, 10, 1), other_epoch(0.5f, 9, 2);
  EXPECT_EQ(agreement(d, 3, 0, d, 3, 0), 1.0);
  EXPECT_NEAR(agreement(d, 3, 0, other_seed, 3, 0), 0.5, 0.05);
  EXPECT_NEAR(agreement(d, 3, 0, other_epoch, 3, 0), 0.5, 0.05);
  EXPECT_NEAR(agreement(d, 3, 0, d, 4, 0), 0.5, 0.05);
  EXPECT_NEAR(agreement(d, 3, 0, d, 3, 1), 0.5, 0.05);
}

TEST(DropoutTest, RateZeroDropsNothing) {
  EXPECT_FALSE(Dropout(0.0f, 9, 1).active());
  EXPECT_FALSE(Dropout().active());
}

}  // namespace
}  // namespace sluice
