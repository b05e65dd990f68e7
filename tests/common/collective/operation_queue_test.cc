#include "common/collective/operation_queue.h"

#include <atomic>
#include <vector>

#include "gtest/gtest.h"

namespace sluice {
namespace {

absl::Status Closed() { return absl::FailedPreconditionError("closed"); }

TEST(OperationQueueTest, OperationsRunInOrderAndOneAtATime) {
  OperationQueue queue(Closed());
  queue.Open();
  std::vector<int> order;  // unguarded: the thread sanitizer sees two at a time
  uint64_t last = 0;
  for (int i = 0; i < 100; ++i) {
    if (i % 10 == 9) {
      EXPECT_TRUE(queue
                      .Run([&] {
                        order.push_back(i);
                        return absl::OkStatus();
                      })
                      .ok());
    } else {
      const uint64_t ticket = queue.Start([&order, i] {
        order.push_back(i);
        return absl::OkStatus();
      });
      EXPECT_GT(ticket, last);
      last = ticket;
    }
  }
  EXPECT_TRUE(queue.Wait(last).ok());
  ASSERT_EQ(order.size(), 100u);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(order[i], i);
}

TEST(OperationQueueTest, AfterAnErrorNothingRunsUntilOpen) {
  OperationQueue queue(Closed());
  queue.Open();
  const uint64_t good = queue.Start([] { return absl::OkStatus(); });
  const uint64_t bad = queue.Start([] { return absl::DataLossError("bad"); });
  std::atomic<int> ran{0};
  const auto count = [&ran] {
    ++ran;
    return absl::OkStatus();
  };
  const uint64_t after = queue.Start(count);
  EXPECT_EQ(queue.Wait(after).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(queue.Wait(bad).code(), absl::StatusCode::kDataLoss);
  EXPECT_TRUE(queue.Wait(good).ok());
  EXPECT_EQ(queue.Run(count).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(queue.Wait(queue.Start(count)).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(ran, 0);
  queue.Open();
  EXPECT_TRUE(queue.Run(count).ok());
  EXPECT_TRUE(queue.Wait(queue.Start(count)).ok());
  EXPECT_EQ(ran, 2);
}

TEST(OperationQueueTest, CloseInterruptsWhatRunsAndDropsTheRest) {
  OperationQueue queue(Closed());
  EXPECT_EQ(queue.Run([] { return absl::OkStatus(); }).code(),
            absl::StatusCode::kFailedPrecondition);
  queue.Open();
  std::atomic<bool> started{false}, interrupted{false}, dropped_ran{false};
  const uint64_t running = queue.Start([&] {
    started = true;
    while (!interrupted) std::this_thread::yield();
    return absl::OkStatus();
  });
  const uint64_t dropped = queue.Start([&] {
    dropped_ran = true;
    return absl::OkStatus();
  });
  while (!started) std::this_thread::yield();
  queue.Close(absl::AbortedError("left"), [&] { interrupted = true; });
  EXPECT_FALSE(dropped_ran);
  EXPECT_TRUE(queue.Wait(running).ok());
  EXPECT_EQ(queue.Wait(dropped).code(), absl::StatusCode::kAborted);
}

TEST(OperationQueueTest, FailEndsWhatWaitsAndKeepsTheResultOfWhatRuns) {
  for (const bool good : {true, false}) {
    OperationQueue queue(Closed());
    queue.Open();
    std::atomic<bool> started{false}, released{false}, dropped_ran{false};
    const uint64_t running = queue.Start([&] {
      started = true;
      while (!released) std::this_thread::yield();
      return good ? absl::OkStatus() : absl::DataLossError("its own");
    });
    const uint64_t dropped = queue.Start([&] {
      dropped_ran = true;
      return absl::OkStatus();
    });
    while (!started) std::this_thread::yield();
    queue.Fail(absl::AbortedError("elsewhere"));
    queue.Fail(absl::InternalError("later"));
    const uint64_t after = queue.Start([] { return absl::OkStatus(); });
    released = true;
    EXPECT_EQ(queue.Wait(after).code(), absl::StatusCode::kAborted);
    EXPECT_EQ(queue.Wait(running).code(),
              good ? absl::StatusCode::kOk : absl::StatusCode::kAborted);
    EXPECT_EQ(queue.Wait(dropped).code(), absl::StatusCode::kAborted);
    EXPECT_FALSE(dropped_ran);
    queue.Open();
    EXPECT_TRUE(queue.Run([] { return absl::OkStatus(); }).ok());
  }
}

TEST(OperationQueueTest, UnknownTicketsAreRefused) {
  OperationQueue queue(Closed());
  EXPECT_EQ(queue.Wait(0).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(queue.Wait(1).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
