#include "common/base/clock.h"

#include <gtest/gtest.h>

#include <chrono>

#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

TEST(ClockTest, FakeClockMovesOnlyWhenTold) {
  FakeClock clock;
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  clock.Advance(absl::Seconds(5));
  clock.Sleep(absl::Seconds(2));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch() + absl::Seconds(7));
  EXPECT_EQ(clock.WallNow(), absl::UnixEpoch() + absl::Seconds(7));
}

TEST(ClockTest, SettingTheTimeOfDayDoesNotMoveTimeouts) {
  FakeClock clock;
  clock.StepWall(absl::Hours(1));
  EXPECT_EQ(clock.Now(), absl::UnixEpoch());
  EXPECT_EQ(clock.WallNow(), absl::UnixEpoch() + absl::Hours(1));
}

TEST(ClockTest, RealNowIsTheMonotonicClock) {
  const auto now = [] {
    return absl::UnixEpoch() +
           absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch());
  };
  const absl::Time before = now();
  const absl::Time real = Clock::Real()->Now();
  EXPECT_GE(real, before);
  EXPECT_LE(real, now());
}

TEST(ClockTest, RealWallTimeIsADate) {
  EXPECT_GT(Clock::Real()->WallNow(),
            absl::FromCivil(absl::CivilDay(2024, 1, 1), absl::UTCTimeZone()));
}

TEST(ClockTest, SleepLastsAsLongAsAsked) {
  const absl::Time before = Clock::Real()->Now();
  Clock::Real()->Sleep(absl::Milliseconds(2));
  Clock::Real()->Sleep(-absl::Hours(1));
  EXPECT_GE(Clock::Real()->Now() - before, absl::Milliseconds(2));
}

}  // namespace
}  // namespace sluice
