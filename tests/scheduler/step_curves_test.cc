#include "scheduler/step_curves.h"

#include <gmock/gmock.h>

#include <tuple>

namespace sluice {
namespace {

using testing::ElementsAre;
using Point = std::tuple<std::string, uint64_t, double>;

std::vector<Point> Points(const std::vector<Scalar>& scalars) {
  std::vector<Point> points;
  for (const Scalar& one : scalars) points.emplace_back(one.tag, one.step, one.value);
  return points;
}

StepLoss Report(uint64_t step, double loss, double examples_per_second = 0) {
  StepLoss one;
  one.set_step(step);
  one.set_loss(loss);
  one.set_examples_per_second(examples_per_second);
  return one;
}

TEST(StepCurvesTest, LossIsTheMeanOnceAllRanksHaveReported) {
  StepCurves curves(2);
  curves.Add(Report(1, 0.5));
  curves.Add(Report(2, 0.25));
  EXPECT_TRUE(curves.Take(false).empty());
  curves.Add(Report(1, 1.5));
  EXPECT_THAT(Points(curves.Take(false)), ElementsAre(Point("train/loss", 1, 1.0)));
  EXPECT_THAT(Points(curves.Take(true)), ElementsAre(Point("train/loss", 2, 0.25)));
  EXPECT_TRUE(curves.Take(true).empty());
}

TEST(StepCurvesTest, SpeedOfAStepIsTheSumOfTheRanksSpeedsAtThatStep) {
  StepCurves curves(2);
  curves.Add(Report(10, 1, 300));
  curves.Add(Report(20, 1, 500));
  curves.Add(Report(10, 1, 200));
  curves.Add(Report(20, 1, 400));
  EXPECT_THAT(Points(curves.Take(false)),
              ElementsAre(Point("train/loss", 10, 1), Point("train/examples_per_second", 10, 500),
                          Point("train/loss", 20, 1), Point("train/examples_per_second", 20, 900)));
}

TEST(StepCurvesTest, AStepWithoutASpeedFromEveryRankHasNoSpeedPoint) {
  StepCurves curves(2);
  curves.Add(Report(10, 1, 300));
  curves.Add(Report(10, 1));
  curves.Add(Report(20, 1, 300));
  EXPECT_THAT(Points(curves.Take(true)),
              ElementsAre(Point("train/loss", 10, 1), Point("train/loss", 20, 1)));
}

TEST(StepCurvesTest, OldestStepsAreHandedOutWhenTooManyWait) {
  StepCurves curves(2);
  for (uint64_t step = 0; step < StepCurves::kOpenSteps + 10; ++step) curves.Add(Report(step, 1));
  const std::vector<Point> points = Points(curves.Take(false));
  ASSERT_EQ(points.size(), 10u);
  EXPECT_EQ(points.front(), Point("train/loss", 0, 1));
}

}  // namespace
}  // namespace sluice
