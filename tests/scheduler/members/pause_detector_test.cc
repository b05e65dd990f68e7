#include "scheduler/members/pause_detector.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const absl::Time kPauseDetectorStart = absl::UnixEpoch();

TEST(PauseDetectorTest, AGapBetweenTicksIsAPause) {
  PauseDetector pauses(absl::Seconds(10), kPauseDetectorStart);
  EXPECT_FALSE(pauses.HasPaused(kPauseDetectorStart + absl::Milliseconds(999)));
  EXPECT_TRUE(pauses.HasPaused(kPauseDetectorStart + absl::Seconds(1)));
  EXPECT_TRUE(pauses.HasPaused(kPauseDetectorStart + absl::Seconds(2)))
      << "the timer has not run yet";
  pauses.Ticked(kPauseDetectorStart + absl::Seconds(2));
  EXPECT_FALSE(pauses.HasPaused(kPauseDetectorStart + absl::Milliseconds(2500)));
}

TEST(PauseDetectorTest, AShortLeaseShortensTheGapDownToABound) {
  PauseDetector two_seconds(absl::Seconds(1), kPauseDetectorStart);
  EXPECT_FALSE(two_seconds.HasPaused(kPauseDetectorStart + absl::Milliseconds(499)));
  EXPECT_TRUE(two_seconds.HasPaused(kPauseDetectorStart + absl::Milliseconds(500)));
  PauseDetector shortest(absl::Milliseconds(100), kPauseDetectorStart);
  EXPECT_FALSE(shortest.HasPaused(kPauseDetectorStart + absl::Milliseconds(299)));
  EXPECT_TRUE(shortest.HasPaused(kPauseDetectorStart + absl::Milliseconds(300)));
}

TEST(PauseDetectorTest, DurationsDoNotReachBackBeyondAPause) {
  PauseDetector pauses(absl::Seconds(10), kPauseDetectorStart);
  const absl::Time now = kPauseDetectorStart + absl::Seconds(100);
  EXPECT_EQ(pauses.Since(kPauseDetectorStart, now), absl::Seconds(100));
  ASSERT_TRUE(pauses.HasPaused(kPauseDetectorStart + absl::Seconds(90)));
  EXPECT_EQ(pauses.Since(kPauseDetectorStart, now), absl::Seconds(10));
  EXPECT_EQ(pauses.Since(kPauseDetectorStart + absl::Seconds(95), now), absl::Seconds(5));
  EXPECT_LT(pauses.Since(absl::InfiniteFuture(), now), absl::ZeroDuration());
}

}  // namespace
}  // namespace sluice
