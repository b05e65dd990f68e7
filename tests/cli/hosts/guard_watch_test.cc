#include "cli/hosts/guard_watch.h"

#include <gtest/gtest.h>

namespace sluice::cli {
namespace {

using Action = GuardWatch::Action;

class GuardWatchTest : public testing::Test {
 protected:
  static absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }
  GuardWatch watch_{At(0)};
};

TEST_F(GuardWatchTest, EndsDaemonsWithin15SecondsAfterTheLastWord) {
  watch_.Heard(At(5));
  EXPECT_EQ(watch_.Step(At(14.9), true), Action::kNone);
  EXPECT_EQ(watch_.Step(At(15), true), Action::kTerminate);
  EXPECT_EQ(watch_.Step(At(17.9), true), Action::kNone);
  EXPECT_EQ(watch_.Step(At(18), true), Action::kKill);
  EXPECT_EQ(watch_.Step(At(18.1), true), Action::kNone);
  EXPECT_EQ(watch_.Step(At(18.2), false), Action::kLeave);
}

TEST_F(GuardWatchTest, ABeatThatComesTooLateChangesNothing) {
  EXPECT_EQ(watch_.Step(At(10), true), Action::kTerminate);
  watch_.Heard(At(10.5));
  EXPECT_TRUE(watch_.ending());
  EXPECT_EQ(watch_.Step(At(13), true), Action::kKill);
}

TEST_F(GuardWatchTest, LeavesAtOnceWhenNothingRuns) {
  watch_.MustEnd("the launcher has gone");
  watch_.MustEnd("a signal");
  EXPECT_EQ(watch_.why(), "the launcher has gone");
  EXPECT_EQ(watch_.Step(At(1), false), Action::kLeave);
}

TEST_F(GuardWatchTest, DoesNotWaitForAProcessThatCannotBeKilled) {
  watch_.MustEnd("a signal");
  EXPECT_EQ(watch_.Step(At(1), true), Action::kTerminate);
  EXPECT_EQ(watch_.Step(At(4), true), Action::kKill);
  EXPECT_EQ(watch_.Step(At(6.9), true), Action::kNone);
  EXPECT_EQ(watch_.Step(At(7), true), Action::kLeave);
}

TEST_F(GuardWatchTest, ServesAsLongAsBeatsCome) {
  for (int second = 0; second < 100; ++second) {
    watch_.Heard(At(second));
    EXPECT_EQ(watch_.Step(At(second + 0.5), second % 2 == 0), Action::kNone);
  }
}

}  // namespace
}  // namespace sluice::cli
