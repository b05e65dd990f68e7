#include "python/core/run_end.h"

#include <thread>

#include "gtest/gtest.h"

namespace sluice {
namespace {

constexpr auto kShort = absl::Milliseconds(1);
constexpr auto kLong = absl::Seconds(60);

TEST(RunEndTest, AStopRightAfterTheJobIsNoEndOfItsOwn) {
  // In nearly all rounds the stop comes first, since the other thread must begin.
  for (int round = 0; round < 100; ++round) {
    RunEnd end(kLong);
    end.Starts();
    std::thread run([&] { EXPECT_EQ(end.Ended(absl::OkStatus()), absl::OkStatus()); });
    EXPECT_EQ(end.Stopped(absl::OkStatus()), std::nullopt);
    run.join();
  }
}

TEST(RunEndTest, AFailureReachesTheLoopInEitherOrder) {
  RunEnd end(kLong);
  end.Starts();
  const absl::Status failure = absl::InvalidArgumentError("bad");
  EXPECT_EQ(end.Ended(failure), failure);
  EXPECT_EQ(end.Stopped(absl::OkStatus()), failure);
}

TEST(RunEndTest, AStopDuringTheRunEndsTheLoop) {
  RunEnd end(kShort);
  end.Starts();
  const auto stopped = end.Stopped(absl::OkStatus());
  ASSERT_TRUE(stopped.has_value());
  EXPECT_TRUE(absl::IsCancelled(*stopped));
}

TEST(RunEndTest, AStopBeforeAnyRunEndsTheLoop) {
  RunEnd end(kLong);
  const auto stopped = end.Stopped(absl::OkStatus());
  ASSERT_TRUE(stopped.has_value());
  EXPECT_TRUE(absl::IsCancelled(*stopped));
}

TEST(RunEndTest, ALostRunWaitsForTheNextAttempt) {
  RunEnd end(kLong);
  end.Starts();
  EXPECT_EQ(end.Ended(absl::CancelledError("taken away")), std::nullopt);
  end.Starts();
  EXPECT_EQ(end.Ended(absl::OkStatus()), absl::OkStatus());
  end.Starts();
  EXPECT_EQ(end.Ended(absl::CancelledError("taken away")), std::nullopt);
  const auto stopped = end.Stopped(absl::OkStatus());
  ASSERT_TRUE(stopped.has_value());
  EXPECT_TRUE(absl::IsCancelled(*stopped));
}

TEST(RunEndTest, ALostSchedulerDoesNotWaitForTheRun) {
  RunEnd end(kLong);
  end.Starts();
  const absl::Status lost = absl::UnavailableError("silent");
  EXPECT_EQ(end.Stopped(lost), lost);
}

}  // namespace
}  // namespace sluice
