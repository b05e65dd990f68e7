#include "cli/cluster/restart_policy.h"

#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

constexpr absl::Time kBegin = absl::UnixEpoch();

TEST(RestartPolicyTest, PausesDoubleWhileLivesAreShort) {
  RestartPolicy policy;
  absl::Time now = kBegin;
  for (const int64_t ms : {100, 200, 400, 800, 1600, 3200, 5000, 5000}) {
    const absl::Time started = now;
    now += absl::Seconds(20);
    EXPECT_EQ(policy.Died(started, now), absl::Milliseconds(ms));
  }
}

TEST(RestartPolicyTest, ALongLifeStartsThePausesAnew) {
  RestartPolicy policy;
  EXPECT_EQ(policy.Died(kBegin, kBegin + absl::Seconds(1)), absl::Milliseconds(100));
  EXPECT_EQ(policy.Died(kBegin + absl::Seconds(1), kBegin + absl::Seconds(2)),
            absl::Milliseconds(200));
  EXPECT_EQ(policy.Died(kBegin + absl::Seconds(2), kBegin + absl::Seconds(62)),
            absl::Milliseconds(100));
}

TEST(RestartPolicyTest, GivesUpAtTheFifthDeathWithinAMinute) {
  RestartPolicy policy;
  for (int i = 1; i <= 4; ++i) {
    EXPECT_TRUE(policy.Died(kBegin, kBegin + i * absl::Seconds(14)).has_value()) << i;
  }
  EXPECT_FALSE(policy.Died(kBegin, kBegin + absl::Seconds(70)).has_value());
}

TEST(RestartPolicyTest, DeathsOlderThanAMinuteDoNotCount) {
  RestartPolicy policy;
  for (int i = 1; i <= 100; ++i) {
    EXPECT_TRUE(policy.Died(kBegin, kBegin + i * absl::Seconds(15)).has_value()) << i;
  }
}

TEST(RestartPolicyTest, GivesUpAtTheThirdFailedStartInARowHoweverLongTheyTook) {
  RestartPolicy policy;
  absl::Time now = kBegin;
  const auto died = [&](bool failed_start) {
    const absl::Time started = now;
    now += absl::Minutes(10);
    return policy.Died(started, now, failed_start).has_value();
  };
  EXPECT_TRUE(died(true));
  EXPECT_TRUE(died(true));
  EXPECT_TRUE(died(false)) << "a start that went well ends the row";
  EXPECT_TRUE(died(true));
  EXPECT_TRUE(died(true));
  EXPECT_FALSE(died(true));
  EXPECT_EQ(policy.WhyNotAgain(), "start number 3 in a row that failed");
}

TEST(RestartPolicyTest, SaysThatTheDeathsWereTooMany) {
  RestartPolicy policy;
  for (int i = 1; i <= 5; ++i) policy.Died(kBegin, kBegin);
  EXPECT_EQ(policy.WhyNotAgain(), "its death number 5 within a minute");
}

}  // namespace
}  // namespace sluice::cli
