#include "cli/screen/format.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

TEST(FormatTest, NumbersAndDurationsAreShort) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(999), "999");
  EXPECT_EQ(WithCommas(1234567), "1,234,567");
  EXPECT_EQ(ShortDuration(1.25), "1.2 s");
  EXPECT_EQ(ShortDuration(59.7), "1 m 00 s");
  EXPECT_EQ(ShortDuration(200), "3 m 20 s");
  EXPECT_EQ(ShortDuration(7500), "2 h 05 m");
  EXPECT_EQ(ShortDuration(-1), "?");
  EXPECT_EQ(ShortDuration(1.0 / 0.0), "?");
}

TEST(FormatTest, CountedNounsAreSingularOrPlural) {
  EXPECT_EQ(Counted(0, "epoch"), "0 epochs");
  EXPECT_EQ(Counted(1, "epoch"), "1 epoch");
  EXPECT_EQ(Counted(1234, "epoch"), "1,234 epochs");
}

TEST(FormatTest, ByteCountsHaveTheUnitThatFits) {
  EXPECT_EQ(ByteCount(1536), "1.5 KiB");
  EXPECT_EQ(ByteCount(3 << 19), "1.5 MiB");
  EXPECT_EQ(ByteCount(uint64_t{3} << 29), "1.5 GiB");
}

TEST(FormatTest, EveryStateOfAJobHasAName) {
  EXPECT_STREQ(StateName(JOB_RECOVERING), "recovering");
  for (int state = JobState_MIN; state <= JobState_MAX; ++state) {
    if (!JobState_IsValid(state) || state == 0) continue;
    EXPECT_STRNE(StateName(static_cast<JobState>(state)), "unknown") << state;
  }
}

}  // namespace
}  // namespace sluice::cli
