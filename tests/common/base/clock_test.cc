#include "common/base/clock.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(FakeClockTest, StandsStillUntilMoved) {
  FakeClock clock;
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  clock.Advance(absl::Seconds(3));
  clock.Sleep(absl::Seconds(4));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(7));
}

TEST(RealClockTest, Advances) {
  const absl::Time before = absl::Now();
  EXPECT_GE(Clock::Real()->Now(), before);
}

}  // namespace
}  // namespace sluice
