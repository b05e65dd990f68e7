#include "server/requests/staleness_clock.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

void Step(StalenessClock* clock, uint32_t rank, int n = 1) {
  for (int i = 0; i < n; ++i) {
    clock->Activate(rank);
    clock->Applied(rank, 0);
  }
}

TEST(StalenessClockTest, FastWorkerWaitsAtTheBound) {
  StalenessClock clock(2, 2);
  clock.Activate(0);
  clock.Activate(1);
  // The pull for step t (from 0) needs t - 2 steps of the other: 0 allows t = 2.
  Step(&clock, 0, 2);
  EXPECT_TRUE(clock.Ready(0, clock.StepOf(0, 0, 0)));
  Step(&clock, 0);
  EXPECT_FALSE(clock.Ready(0, clock.StepOf(0, 0, 0)));
  EXPECT_EQ(clock.Blocking(0, clock.StepOf(0, 0, 0)), 1u);
  EXPECT_TRUE(clock.Ready(1, clock.StepOf(1, 0, 0)));
  Step(&clock, 1);
  EXPECT_TRUE(clock.Ready(0, clock.StepOf(0, 0, 0)));
}

TEST(StalenessClockTest, BoundOfZeroIsLockStep) {
  StalenessClock clock(3, 0);
  for (uint32_t r = 0; r < 3; ++r) clock.Activate(r);
  for (int step = 0; step < 3; ++step) {
    for (uint32_t r = 0; r < 3; ++r) EXPECT_TRUE(clock.Ready(r, clock.StepOf(r, 0, 0))) << r;
    Step(&clock, 0);
    Step(&clock, 2);
    EXPECT_EQ(clock.Blocking(0, clock.StepOf(0, 0, 0)), 1u);
    EXPECT_EQ(clock.Blocking(2, clock.StepOf(2, 0, 0)), 1u);
    Step(&clock, 1);
  }
}

TEST(StalenessClockTest, PipelinedPullsCountAsTheirTargetSteps) {
  StalenessClock clock(2, 1);
  clock.Activate(0);
  clock.Activate(1);
  EXPECT_TRUE(clock.Ready(0, clock.StepOf(0, 1, 0)));
  EXPECT_TRUE(clock.Ready(0, clock.StepOf(0, 2, 0)));
  EXPECT_FALSE(clock.Ready(0, clock.StepOf(0, 3, 0)));
}

TEST(StalenessClockTest, WaitingPullKeepsItsStepWhenItsRankMovesOn) {
  StalenessClock clock(2, 1);
  clock.Activate(0);
  clock.Activate(1);
  const uint64_t step = clock.StepOf(0, 4, 0);
  EXPECT_FALSE(clock.Ready(0, step));
  Step(&clock, 0, 3);
  EXPECT_FALSE(clock.Ready(0, step));
  Step(&clock, 1);
  EXPECT_FALSE(clock.Ready(0, step));
  Step(&clock, 1);  // step 3 needs 3 - 1 = 2
  EXPECT_TRUE(clock.Ready(0, step));
}

TEST(StalenessClockTest, ResentPullIsForTheSameStep) {
  StalenessClock clock(2, 1);
  Step(&clock, 1, 7);
  clock.Activate(0);  // joins at 7: its push 1 is step 7
  const uint64_t step = clock.StepOf(0, 5, 0);
  EXPECT_EQ(step, 11u);
  for (uint64_t applied = 1; applied <= 6; ++applied) {
    Step(&clock, 0);
    EXPECT_EQ(clock.StepOf(0, 5, applied), step) << "sent again after push " << applied;
  }
}

TEST(StalenessClockTest, ImplausibleNumbersGiveNoStepBeforeTheFirst) {
  StalenessClock clock(2, 1);
  EXPECT_EQ(clock.StepOf(0, 1, 5), 0u);
  EXPECT_EQ(clock.StepOf(0, 0, 5), 0u);
}

TEST(StalenessClockTest, WithoutABoundNoRankWaits) {
  StalenessClock clock(2, std::nullopt);
  clock.Activate(1);
  Step(&clock, 0, 1000);
  EXPECT_TRUE(clock.Ready(0, clock.StepOf(0, 1050, 1000)));
}

TEST(StalenessClockTest, IdleWorkersDelayNoOtherRank) {
  StalenessClock clock(3, 0);
  clock.Activate(0);
  clock.Activate(1);
  Step(&clock, 0, 5);
  EXPECT_FALSE(clock.Ready(0, clock.StepOf(0, 0, 0)));
  clock.SetIdle(1);
  EXPECT_TRUE(clock.Ready(0, clock.StepOf(0, 0, 0)));  // rank 2 never came
}

TEST(StalenessClockTest, JoiningRankStartsLevelWithTheSlowest) {
  StalenessClock clock(3, 2);
  Step(&clock, 0, 9);
  Step(&clock, 1, 1);  // joins at 9
  EXPECT_EQ(clock.clock(1), 10u);
  Step(&clock, 1, 1);
  clock.Activate(2);
  EXPECT_EQ(clock.clock(2), 9u);
  EXPECT_TRUE(clock.Ready(1, clock.StepOf(1, 0, 0)));
  clock.SetIdle(1);
  Step(&clock, 0, 20);
  clock.SetIdle(2);
  clock.Activate(1);
  EXPECT_EQ(clock.clock(1), 29u);
}

TEST(StalenessClockTest, MeasuresUpdatesByOthersSinceThePull) {
  StalenessClock clock(2, std::nullopt);
  const uint64_t pulled = clock.others(0);
  clock.Applied(1, 0);
  clock.Applied(1, 0);
  clock.Applied(1, 0);
  clock.Applied(0, pulled);
  EXPECT_EQ(clock.staleness_sum(), 3u);
  EXPECT_EQ(clock.staleness_max(), 3u);
  clock.Applied(0, clock.others(0));
  EXPECT_EQ(clock.staleness_sum(), 3u);
  EXPECT_EQ(clock.others(0), 3u);
  EXPECT_EQ(clock.frames(), 5u);
  clock.Applied(0, 1000);  // more than were applied: 0, not a huge number
  EXPECT_EQ(clock.staleness_sum(), 3u);
}

}  // namespace
}  // namespace sluice
