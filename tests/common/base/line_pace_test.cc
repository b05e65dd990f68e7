#include "common/base/line_pace.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(LinePaceTest, TakesTheFirstHundredThenOneInTenSeconds) {
  LinePace pace;
  LinePace::Time now;
  for (int i = 0; i < 100; ++i) EXPECT_TRUE(pace.Take(now));
  // A day of a step line a second.
  int taken = 0;
  for (int second = 1; second <= 24 * 3600; ++second)
    taken += pace.Take(now + std::chrono::seconds(second));
  EXPECT_EQ(taken, 24 * 360);
}

TEST(LinePaceTest, RareLinesAreAllTaken) {
  LinePace pace;
  for (int i = 0; i < 1000; ++i)
    EXPECT_TRUE(pace.Take(LinePace::Time() + i * std::chrono::seconds(10)));
}

}  // namespace
}  // namespace sluice
