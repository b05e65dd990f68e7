#include "common/daemon/scheduler_choice.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(SchedulerChoiceTest, StaysWithTheOneThatHasAConnection) {
  SchedulerChoice choice(3);
  EXPECT_EQ(choice.current(), 0u);
  EXPECT_EQ(choice.Choose({true, true, true}), 0u);
  EXPECT_EQ(choice.Choose({false, false, true}), 2u);
  EXPECT_EQ(choice.Choose({true, true, true}), 2u);
  EXPECT_EQ(choice.Choose({false, false, false}), std::nullopt);
  EXPECT_EQ(choice.current(), 2u);
}

TEST(SchedulerChoiceTest, TriesTheNextOneInTurnAfterACallWithoutAnswer) {
  SchedulerChoice choice(3);
  choice.NoAnswer(0);
  EXPECT_EQ(choice.current(), 1u);
  choice.NoAnswer(0);  // an older call to the first one
  EXPECT_EQ(choice.current(), 1u);
  choice.NoAnswer(1);
  choice.NoAnswer(2);
  EXPECT_EQ(choice.current(), 0u);
  choice.NoAnswer(0);
  EXPECT_EQ(choice.Choose({true, false, false}), 0u) << "the only one that can answer";
}

TEST(SchedulerChoiceTest, SilentOneIsLeftForAnotherThatHasAConnection) {
  SchedulerChoice choice(3);
  EXPECT_EQ(choice.ChooseOther(0, {true, false, false}), std::nullopt);
  EXPECT_EQ(choice.current(), 0u);
  EXPECT_EQ(choice.ChooseOther(0, {true, false, true}), 2u);
  EXPECT_EQ(choice.current(), 2u);
  // Another call to the silent one follows the choice.
  EXPECT_EQ(choice.ChooseOther(0, {true, true, true}), 2u);
  // A choice without connection is no reason to give a call up.
  choice.NoAnswer(2);
  EXPECT_EQ(choice.current(), 0u);
  EXPECT_EQ(choice.ChooseOther(2, {false, false, true}), std::nullopt);
}

TEST(SchedulerChoiceTest, OneSchedulerIsAlwaysChosen) {
  SchedulerChoice choice(1);
  choice.NoAnswer(0);
  EXPECT_EQ(choice.current(), 0u);
  EXPECT_EQ(choice.ChooseOther(0, {true}), std::nullopt);
}

}  // namespace
}  // namespace sluice
