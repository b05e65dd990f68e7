#include "cli/plan/line_plot.h"

#include <gmock/gmock.h>

namespace sluice::plan {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(LinePlotTest, PointsLieBetweenPowersOfTen) {
  // 1 to 100 across 490 units from x 80; 10 to 1000 up 350 units from y 390.
  const std::string svg = SvgOf({"t", "x", "y", {{"a", false, {{1, 10}, {10, 100}, {100, 1000}}}}});
  EXPECT_THAT(svg, HasSubstr("points=\"80.0,390.0 325.0,215.0 570.0,40.0\""));
  EXPECT_THAT(svg, HasSubstr(">1k</text>"));
}

TEST(LinePlotTest, LeavesOutWhatHasNoLogarithm) {
  const std::string svg = SvgOf({"t", "x", "y", {{"a", true, {{1, 0}, {1, 10}, {10, 100}}}}});
  EXPECT_THAT(svg, HasSubstr("points=\"80.0,390.0 570.0,40.0\""));
  EXPECT_THAT(svg, HasSubstr("stroke-dasharray"));
}

TEST(LinePlotTest, NamesAreEscaped) {
  EXPECT_THAT(SvgOf({"a<b & c", "x", "y", {}}), HasSubstr("a&lt;b &amp; c"));
}

TEST(LinePlotTest, ALineWithoutPointsIsOnlyInTheLegend) {
  const std::string svg = SvgOf({"t", "x", "y", {{"empty", false, {}}}});
  EXPECT_THAT(svg, Not(HasSubstr("polyline")));
  EXPECT_THAT(svg, HasSubstr(">empty</text>"));
}

}  // namespace
}  // namespace sluice::plan
