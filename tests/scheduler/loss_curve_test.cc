#include "scheduler/loss_curve.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

StepLoss Loss(uint64_t step, double loss) {
  StepLoss one;
  one.set_step(step);
  one.set_loss(loss);
  return one;
}

TEST(LossCurveTest, PointIsTheMeanOnceAllRanksHaveReported) {
  LossCurve curve(2);
  curve.Add(Loss(1, 0.5));
  curve.Add(Loss(2, 0.25));
  EXPECT_TRUE(curve.Take(false).empty());
  curve.Add(Loss(1, 1.5));
  const auto points = curve.Take(false);
  ASSERT_EQ(points.size(), 1u);
  EXPECT_EQ(points[0].step, 1u);
  EXPECT_EQ(points[0].value, 1.0);
  const auto rest = curve.Take(true);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].value, 0.25);
}

TEST(LossCurveTest, MemoryIsBounded) {
  LossCurve curve(2);
  for (uint64_t step = 0; step < LossCurve::kOpenSteps + 10; ++step) curve.Add(Loss(step, 1));
  EXPECT_EQ(curve.Take(false).size(), 10u);
}

}  // namespace
}  // namespace sluice
