#include "common/base/normal_quantile.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(NormalQuantileTest, KnownQuantiles) {
  EXPECT_NEAR(NormalQuantile(0.5), 0, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.975), 1.959963985, 1e-8);
  EXPECT_NEAR(NormalQuantile(0.01), -2.326347874, 1e-8);
}

TEST(NormalQuantileTest, FarTailsStayFinite) {
  EXPECT_NEAR(NormalQuantile(1e-300), -8, 1e-6);
  EXPECT_NEAR(NormalQuantile(1 - 1e-9), 5.9978, 1e-3);
}

}  // namespace
}  // namespace sluice
