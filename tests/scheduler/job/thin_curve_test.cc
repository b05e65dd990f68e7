#include "scheduler/job/thin_curve.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(ThinCurveTest, AShortCurveKeepsEveryPoint) {
  ThinCurve curve(10);
  for (uint64_t x = 1; x <= 10; ++x) curve.Add(x, 2.0 * x);
  ASSERT_EQ(curve.points().size(), 10u);
  EXPECT_EQ(curve.points()[3].x, 4u);
  EXPECT_EQ(curve.points()[3].y, 8.0);
}

TEST(ThinCurveTest, ALongCurveIsBoundedAndSpreadEvenly) {
  ThinCurve curve(100);
  constexpr uint64_t kSteps = 1'000'000;
  for (uint64_t x = 1; x <= kSteps; ++x) {
    curve.Add(x, static_cast<double>(x));
    ASSERT_LE(curve.points().size(), 100u);
    ASSERT_EQ(curve.points().back().x, x);  // the newest is always there
  }
  const auto& points = curve.points();
  EXPECT_GE(points.size(), 25u);
  EXPECT_EQ(points.front().x, 1u);
  uint64_t widest = 0;
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_LT(points[i - 1].x, points[i].x);
    EXPECT_EQ(points[i].y, static_cast<double>(points[i].x));
    widest = std::max(widest, points[i].x - points[i - 1].x);
  }
  EXPECT_LT(widest, kSteps / 10);
}

TEST(ThinCurveTest, AStepThatIsTrainedAgainReplacesItsPoint) {
  ThinCurve curve(10);
  for (const uint64_t x : {1, 2, 3, 4, 2, 3}) curve.Add(x, 10.0 * x + curve.points().size());
  ASSERT_EQ(curve.points().size(), 4u);
  EXPECT_EQ(curve.points()[1].y, 24.0);
  EXPECT_EQ(curve.points()[3].y, 43.0);
}

TEST(ThinCurveTest, PointsOutOfOrderAreSorted) {
  ThinCurve curve(10);
  for (const uint64_t x : {5, 1, 3}) curve.Add(x, 0);
  ASSERT_EQ(curve.points().size(), 3u);
  EXPECT_EQ(curve.points()[0].x, 1u);
  EXPECT_EQ(curve.points()[2].x, 5u);
}

TEST(ThinCurvesTest, AJobHasABoundedNumberOfCurves) {
  ThinCurves curves;
  for (int i = 0; i < 1000; ++i) curves.Add({{absl::StrCat("train/", i), 1, 1.0}});
  curves.Add({{"train/0", 2, 1.0}});
  EXPECT_EQ(curves.by_tag().size(), ThinCurves::kMostCurves);
  EXPECT_EQ(curves.point_count(), ThinCurves::kMostCurves + 1);
}

}  // namespace
}  // namespace sluice
