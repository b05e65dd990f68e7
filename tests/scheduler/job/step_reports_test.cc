#include "scheduler/job/step_reports.h"

#include <gmock/gmock.h>

#include <cmath>
#include <tuple>

namespace sluice {
namespace {

using testing::ElementsAre;

using StepReportsPoint = std::tuple<std::string, uint64_t, double>;

std::vector<StepReportsPoint> Points(const std::vector<Scalar>& scalars) {
  std::vector<StepReportsPoint> points;
  for (const Scalar& one : scalars) points.emplace_back(one.tag, one.step, one.value);
  return points;
}

StepLoss StepReportsReport(uint64_t step, double loss, double examples_per_second = 0) {
  StepLoss one;
  one.set_step(step);
  one.set_loss(loss);
  one.set_examples_per_second(examples_per_second);
  return one;
}

TEST(StepCurvesTest, LossIsTheMeanOnceAllRanksHaveReported) {
  StepCurves curves(2);
  curves.Add(StepReportsReport(1, 0.5));
  curves.Add(StepReportsReport(2, 0.25));
  EXPECT_TRUE(curves.Take(false).empty());
  curves.Add(StepReportsReport(1, 1.5));
  EXPECT_THAT(Points(curves.Take(false)), ElementsAre(StepReportsPoint("train/loss", 1, 1.0)));
  EXPECT_THAT(Points(curves.Take(true)), ElementsAre(StepReportsPoint("train/loss", 2, 0.25)));
  EXPECT_TRUE(curves.Take(true).empty());
}

TEST(StepCurvesTest, SpeedOfAStepIsTheSumOfTheRanksSpeedsAtThatStep) {
  StepCurves curves(2);
  curves.Add(StepReportsReport(10, 1, 300));
  curves.Add(StepReportsReport(20, 1, 500));
  curves.Add(StepReportsReport(10, 1, 200));
  curves.Add(StepReportsReport(20, 1, 400));
  EXPECT_THAT(Points(curves.Take(false)),
              ElementsAre(StepReportsPoint("train/loss", 10, 1),
                          StepReportsPoint("train/examples_per_second", 10, 500),
                          StepReportsPoint("train/loss", 20, 1),
                          StepReportsPoint("train/examples_per_second", 20, 900)));
}

TEST(StepCurvesTest, WhatProgramsLogIsTheMeanOfTheRanksThatLogIt) {
  StepCurves curves(2);
  const auto add = [&](const std::string& name, double value, StepLoss loss) {
    NamedValue* const user = loss.add_user();
    user->set_name(name);
    user->set_value(value);
    return loss;
  };
  curves.Add(add("norm", 2, add("nan", std::nan(""), StepReportsReport(1, 1))));
  curves.Add(add("norm", 4, add("alone", 7, StepReportsReport(1, 1))));
  EXPECT_THAT(Points(curves.Take(false)), ElementsAre(StepReportsPoint("train/loss", 1, 1),
                                                      StepReportsPoint("train/alone", 1, 7),
                                                      StepReportsPoint("train/norm", 1, 3)));
}

TEST(StepCurvesTest, LongCurvesAreThinnedAndKeepTheirEnd) {
  StepCurves curves(1, /*steps_of_a_stride=*/4);
  for (uint64_t step = 1; step <= 24; ++step) curves.Add(StepReportsReport(step, 0.5));
  std::vector<uint64_t> steps;
  for (const Scalar& point : curves.Take(true)) steps.push_back(point.step);
  EXPECT_THAT(steps, ElementsAre(1, 2, 3, 4, 5, 7, 9, 11, 13, 17, 21));
}

TEST(StepCurvesTest, AStepWithoutASpeedFromEveryRankHasNoSpeedPoint) {
  StepCurves curves(2);
  curves.Add(StepReportsReport(10, 1, 300));
  curves.Add(StepReportsReport(10, 1));
  curves.Add(StepReportsReport(20, 1, 300));
  EXPECT_THAT(Points(curves.Take(true)), ElementsAre(StepReportsPoint("train/loss", 10, 1),
                                                     StepReportsPoint("train/loss", 20, 1)));
}

TEST(StepCurvesTest, OldestStepsAreHandedOutWhenTooManyWait) {
  StepCurves curves(2);
  for (uint64_t step = 0; step < StepCurves::kOpenSteps + 10; ++step)
    curves.Add(StepReportsReport(step, 1));
  const std::vector<StepReportsPoint> points = Points(curves.Take(false));
  ASSERT_EQ(points.size(), 10u);
  EXPECT_EQ(points.front(), StepReportsPoint("train/loss", 0, 1));
}

google::protobuf::RepeatedPtrField<StepLoss> Steps(uint64_t first, uint64_t last) {
  google::protobuf::RepeatedPtrField<StepLoss> losses;
  for (uint64_t step = first; step <= last; ++step) losses.Add()->set_step(step);
  return losses;
}

std::vector<uint64_t> StepsAfter(const StepReports& reports, uint64_t seen, uint64_t* count) {
  WatchJobReply reply;
  reports.AddTo(seen, &reply);
  *count = reply.steps_seen();
  std::vector<uint64_t> steps;
  for (const StepLoss& step : reply.steps()) steps.push_back(step.step());
  return steps;
}

TEST(StepReportsTest, ARepeatedReportCountsOnceForItsRank) {
  StepReports reports(2);
  uint64_t count = 0;
  reports.Add(0, Steps(1, 2));
  reports.Add(0, Steps(1, 3));
  EXPECT_THAT(StepsAfter(reports, 0, &count), testing::ElementsAre(1, 2, 3));
  EXPECT_TRUE(reports.TakePoints(/*all=*/false).empty()) << "the other rank has not reported";
  reports.Add(1, Steps(1, 3));
  EXPECT_THAT(StepsAfter(reports, 3, &count), testing::ElementsAre(1, 2, 3));
  EXPECT_EQ(count, 6u);
  EXPECT_EQ(reports.TakePoints(/*all=*/false).size(), 3u);
}

TEST(StepReportsTest, TheNewestStepsAreKept) {
  StepReports reports(1);
  const uint64_t n = StepReports::kRecent + 10;
  reports.Add(0, Steps(1, n));
  uint64_t count = 0;
  const std::vector<uint64_t> kept = StepsAfter(reports, 0, &count);
  ASSERT_EQ(kept.size(), StepReports::kRecent);
  EXPECT_EQ(kept.front(), 11u);
  EXPECT_EQ(kept.back(), n);
  EXPECT_EQ(count, n);
  EXPECT_THAT(StepsAfter(reports, n - 1, &count), testing::ElementsAre(n));
}

TEST(StepReportsTest, DroppedStepsStillCount) {
  StepReports reports(1);
  reports.Add(0, Steps(1, 3));
  reports.DropSteps();
  uint64_t count = 0;
  EXPECT_TRUE(StepsAfter(reports, 0, &count).empty());
  EXPECT_EQ(count, 3u);
}

TEST(StepReportsTest, TheNextAttemptMayHaveOtherRanks) {
  StepReports reports(2);
  reports.Add(0, Steps(1, 3));
  reports.TakePoints(/*all=*/true);
  reports.Restart(/*worker_num=*/3);
  for (const uint32_t rank : {0, 1}) reports.Add(rank, Steps(2, 2));
  EXPECT_TRUE(reports.TakePoints(/*all=*/false).empty()) << "one of three has not reported";
  reports.Add(2, Steps(2, 2));
  EXPECT_EQ(reports.TakePoints(/*all=*/false).size(), 1u);
}

}  // namespace
}  // namespace sluice
