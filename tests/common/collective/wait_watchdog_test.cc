#include "common/collective/wait_watchdog.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

constexpr std::chrono::milliseconds kShortest(5);
constexpr std::chrono::hours kLong(1);

// A wait that lasts until somebody aborts it.
class Wait {
 public:
  std::function<void()> abort() {
    return [this] {
      MutexLock lock(&mutex_);
      ++aborted_;
      changed_.NotifyAll();
    };
  }
  void Await() {
    MutexLock lock(&mutex_);
    while (aborted_ == 0) changed_.Wait(&mutex_);
  }
  int aborted() {
    MutexLock lock(&mutex_);
    return aborted_;
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  int aborted_ ABSL_GUARDED_BY(mutex_) = 0;
};

WaitWatchdog::TimePoint In(std::chrono::nanoseconds time) {
  return std::chrono::steady_clock::now() +
         std::chrono::duration_cast<std::chrono::steady_clock::duration>(time);
}

TEST(WaitWatchdogTest, AWaitIsAbortedAtItsDeadline) {
  WaitWatchdog watchdog(kShortest);
  watchdog.Start();
  for (int i = 0; i < 3; ++i) {
    Wait wait;
    const WaitWatchdog::TimePoint deadline = In((i + 1) * kShortest);
    watchdog.Begin(deadline, wait.abort());
    wait.Await();
    EXPECT_GE(std::chrono::steady_clock::now(), deadline) << i;
    EXPECT_TRUE(watchdog.End()) << i;
  }
}

TEST(WaitWatchdogTest, AWaitThatHasEndedIsLeftAlone) {
  WaitWatchdog watchdog(kShortest);
  watchdog.Start();
  Wait ended, later;
  watchdog.Begin(In(kShortest), ended.abort());
  if (watchdog.End()) GTEST_SKIP() << "this thread was paused for longer than the wait may last";
  watchdog.Begin(In(3 * kShortest), later.abort());
  later.Await();  // the deadline of the first wait has passed too
  EXPECT_TRUE(watchdog.End());
  EXPECT_EQ(ended.aborted(), 0);
}

TEST(WaitWatchdogTest, AbortEndsAWaitBeforeItsDeadline) {
  WaitWatchdog watchdog(kLong);
  watchdog.Start();
  Wait wait;
  watchdog.Begin(In(kLong), wait.abort());
  std::thread other([&] { watchdog.Abort(); });
  wait.Await();
  other.join();
  EXPECT_FALSE(watchdog.End()) << "its deadline has not passed";
  EXPECT_EQ(wait.aborted(), 1);
}

TEST(WaitWatchdogTest, AbortBetweenWaitsDoesNotReachTheNextOne) {
  WaitWatchdog watchdog(kLong);
  watchdog.Start();
  Wait first, second;
  watchdog.Abort();
  watchdog.Begin(In(kLong), first.abort());
  EXPECT_FALSE(watchdog.End());
  watchdog.Abort();
  watchdog.Begin(In(kLong), second.abort());
  EXPECT_FALSE(watchdog.End());
  EXPECT_EQ(first.aborted(), 0);
  EXPECT_EQ(second.aborted(), 0);
}

TEST(WaitWatchdogTest, AWaitAfterOneThatExpiredHasItsOwnTime) {
  WaitWatchdog watchdog(kShortest);
  watchdog.Start();
  Wait late, next;
  watchdog.Begin(In(kShortest), late.abort());
  late.Await();
  EXPECT_TRUE(watchdog.End());
  watchdog.Begin(In(kLong), next.abort());
  EXPECT_FALSE(watchdog.End());
  EXPECT_EQ(next.aborted(), 0);
}

TEST(WaitWatchdogTest, StopDoesNotWaitForTheNextLookAndMayBeFollowedByStart) {
  WaitWatchdog watchdog(kLong);
  for (int i = 0; i < 2; ++i) {
    EXPECT_FALSE(watchdog.running());
    watchdog.Start();
    EXPECT_TRUE(watchdog.running());
    watchdog.Stop();
  }
  watchdog.Stop();
  watchdog.Start();  // the destructor stops it
}

}  // namespace
}  // namespace sluice
