#include "server/requests/step_barrier.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using Outcome = StepBarrier::Outcome;
// The active ranks of a job without losses.
std::vector<bool> AllOf(size_t ranks) { return std::vector<bool>(ranks, true); }
absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(StepBarrierTest, ClosesWhenTheLastRankCommits) {
  StepBarrier barrier(AllOf(3));
  EXPECT_EQ(barrier.Commit(2, 1, At(0)), Outcome::kWaiting);
  EXPECT_EQ(barrier.Commit(0, 1, At(1)), Outcome::kWaiting);
  EXPECT_EQ(barrier.missing(), 1u);
  EXPECT_EQ(barrier.Commit(1, 1, At(2)), Outcome::kClose);
  barrier.Closed();
  EXPECT_EQ(barrier.closed(), 1u);
  EXPECT_EQ(barrier.missing(), 3u);
}

TEST(StepBarrierTest, RepeatedCommitDoesNotCloseTheStep) {
  StepBarrier barrier(AllOf(2));
  EXPECT_EQ(barrier.Commit(0, 1, At(0)), Outcome::kWaiting);
  EXPECT_EQ(barrier.Commit(0, 1, At(0)), Outcome::kDuplicate);
  EXPECT_EQ(barrier.Commit(1, 1, At(0)), Outcome::kClose);
  EXPECT_EQ(barrier.Commit(1, 1, At(0)), Outcome::kDuplicate);
  barrier.Closed();
  EXPECT_EQ(barrier.Commit(0, 1, At(0)), Outcome::kDuplicate);
  EXPECT_EQ(barrier.missing(), 2u);
}

TEST(StepBarrierTest, RefusesACommitOfALaterStep) {
  StepBarrier barrier(AllOf(1));
  EXPECT_EQ(barrier.Commit(0, 2, At(0)), Outcome::kAhead);
  EXPECT_EQ(barrier.missing(), 1u);
}

TEST(StepBarrierTest, NamesTheRankThatCausedTheLongestWait) {
  StepBarrier barrier(AllOf(3));
  for (uint64_t step = 1; step <= 3; ++step) {
    const uint32_t last = step == 2 ? 0 : 2;  // rank 2 twice, rank 0 once
    const double t = 100.0 * step;
    uint32_t seconds = 0;
    for (uint32_t r = 0; r < 3; ++r) {
      if (r != last) barrier.Commit(r, step, At(t + seconds++));
    }
    barrier.Commit(last, step, At(t + 10));
    barrier.Closed();
  }
  EXPECT_EQ(barrier.slowest_rank(), 2u);
  EXPECT_EQ(barrier.slowest_wait(), absl::Seconds(18));  // 9 s, twice
}

TEST(StepBarrierTest, OneLongWaitCountsMoreThanManyShortOnes) {
  StepBarrier barrier(AllOf(2));
  for (uint64_t step = 1; step <= 10; ++step) {
    const uint32_t last = step == 5 ? 1 : 0;
    barrier.Commit(1 - last, step, At(100.0 * step));
    barrier.Commit(last, step, At(100.0 * step + (last == 1 ? 20 : 1)));
    barrier.Closed();
  }
  EXPECT_EQ(barrier.slowest_rank(), 1u);
  EXPECT_EQ(barrier.slowest_wait(), absl::Seconds(20));
}

TEST(StepBarrierTest, WaitsForActiveRanksOnly) {
  StepBarrier barrier({false, true, false, true});
  EXPECT_EQ(barrier.missing(), 2u);
  EXPECT_EQ(barrier.first_missing(), 1u);
  EXPECT_FALSE(barrier.waiting());
  EXPECT_EQ(barrier.Commit(1, 1, At(0)), Outcome::kWaiting);
  EXPECT_TRUE(barrier.waiting());
  EXPECT_EQ(barrier.first_missing(), 3u);
  EXPECT_EQ(barrier.Commit(3, 1, At(2)), Outcome::kClose);
  EXPECT_FALSE(barrier.waiting()) << "no rank is missing while the step is applied";
  barrier.Closed();
  EXPECT_EQ(barrier.missing(), 2u);
  EXPECT_EQ(barrier.slowest_rank(), 3u);
}

TEST(StepBarrierTest, SingleRankHasNoWait) {
  StepBarrier barrier(AllOf(1));
  EXPECT_EQ(barrier.Commit(0, 1, At(5)), Outcome::kClose);
  barrier.Closed();
  EXPECT_EQ(barrier.slowest_wait(), absl::ZeroDuration());
}

TEST(StepBarrierTest, ResumedJobBeginsAfterItsStep) {
  StepBarrier barrier(AllOf(2), 40);
  EXPECT_EQ(barrier.closed(), 40u);
  EXPECT_EQ(barrier.Commit(0, 40, At(0)), Outcome::kDuplicate);
  EXPECT_EQ(barrier.Commit(0, 42, At(0)), Outcome::kAhead);
  EXPECT_EQ(barrier.Commit(0, 41, At(0)), Outcome::kWaiting);
  EXPECT_EQ(barrier.Commit(1, 41, At(0)), Outcome::kClose);
  barrier.Closed();
  EXPECT_EQ(barrier.closed(), 41u);
}

}  // namespace
}  // namespace sluice
