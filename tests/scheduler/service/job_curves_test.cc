#include "scheduler/service/job_curves.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(JobCurvesTest, GivesAsManyPointsAsAreAskedFor) {
  JobCurves curves;
  std::vector<Scalar> points;
  for (uint64_t step = 1; step <= 100'000; ++step) points.push_back({"train/loss", step, 0.5});
  curves.Add("a-1", points);
  EXPECT_LE(curves.Of("a-1", 2000).by_tag().at("train/loss").points().size(),
            ThinCurves::kMostPoints);
  EXPECT_GT(curves.Of("a-1", 2000).by_tag().at("train/loss").points().size(), 500u);
  const auto few = curves.Of("a-1", 50).by_tag().at("train/loss").points();
  EXPECT_LE(few.size(), 50u);
  EXPECT_EQ(few.back().x, 100'000u);
  EXPECT_TRUE(curves.Of("b-1", 50).by_tag().empty());
  curves.End("a-1");
  EXPECT_LE(curves.Of("a-1", 2000).by_tag().at("train/loss").points().size(),
            JobCurves::kPointsOfEnded);
}

TEST(JobCurvesTest, AContinuedJobHasTheEarlierPointsAndThoseOfNow) {
  JobCurves curves;
  ThinCurves earlier;
  earlier.Add({{"train/loss", 1, 0.5}, {"train/loss", 2, 0.4}, {"eval/auc", 1, 0.9}});
  // Step 2 is trained again, and is reported before the earlier points are read.
  curves.Add("a-1", {{"train/loss", 2, 0.3}, {"train/loss", 3, 0.2}});
  curves.Continue("a-1", earlier);
  const auto all = curves.Of("a-1", 100).by_tag();
  ASSERT_EQ(all.at("train/loss").points().size(), 3u);
  EXPECT_EQ(all.at("train/loss").points()[0].y, 0.5);
  EXPECT_EQ(all.at("train/loss").points()[1].y, 0.3);
  EXPECT_EQ(all.at("train/loss").points()[2].y, 0.2);
  EXPECT_EQ(all.at("eval/auc").points().size(), 1u);
}

TEST(JobCurvesTest, BeyondTheBoundTheOldestEndedJobIsForgotten) {
  JobCurves curves(/*most_points_of_all=*/300);
  const auto add = [&](const std::string& job_id) {
    std::vector<Scalar> points;
    for (uint64_t step = 1; step <= 100; ++step) points.push_back({"train/loss", step, 0.5});
    curves.Add(job_id, points);
  };
  add("a-1");
  add("a-2");
  add("a-3");
  curves.End("a-2");
  EXPECT_FALSE(curves.Of("a-2", 100).by_tag().empty());
  add("a-4");
  EXPECT_TRUE(curves.Of("a-2", 100).by_tag().empty());
  EXPECT_FALSE(curves.Of("a-1", 100).by_tag().empty());
  add("a-5");
  EXPECT_TRUE(curves.Of("a-1", 100).by_tag().empty());
  EXPECT_FALSE(curves.Of("a-5", 100).by_tag().empty());
}

}  // namespace
}  // namespace sluice
