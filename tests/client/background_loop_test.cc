#include "client/background_loop.h"

#include <gtest/gtest.h>

#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

// The work counts its runs, and a test waits for a count.
class BackgroundLoopTest : public ::testing::Test {
 protected:
  BackgroundLoopTest()
      : loop_(&clock_, [this] {
          MutexLock lock(&mu_);
          ++runs_;
          ran_.NotifyAll();
          return due_;
        }) {}
  ~BackgroundLoopTest() override { loop_.Stop(); }

  void WaitForRuns(int n) {
    MutexLock lock(&mu_);
    while (runs_ < n) ran_.Wait(&mu_);
  }
  void SetDue(absl::Time due) {
    MutexLock lock(&mu_);
    due_ = due;
  }
  int runs() {
    MutexLock lock(&mu_);
    return runs_;
  }

  FakeClock clock_;
  Mutex mu_;
  CondVar ran_;
  int runs_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Time due_ ABSL_GUARDED_BY(mu_) = absl::InfiniteFuture();
  BackgroundLoop loop_;
};

TEST_F(BackgroundLoopTest, RunsAtStartAndAfterEachWake) {
  EXPECT_EQ(runs(), 0);
  loop_.Start();
  WaitForRuns(1);
  loop_.Wake();
  WaitForRuns(2);
  loop_.Wake();
  WaitForRuns(3);
}

TEST_F(BackgroundLoopTest, RunsWhenDue) {
  SetDue(clock_.Now() + absl::Hours(1));
  loop_.Start();
  WaitForRuns(1);
  SetDue(absl::InfiniteFuture());
  EXPECT_EQ(runs(), 1);
  clock_.Advance(absl::Hours(1));
  WaitForRuns(2);
}

TEST_F(BackgroundLoopTest, RunsAgainAtOnceWhenAlreadyDue) {
  SetDue(absl::InfinitePast());
  loop_.Start();
  WaitForRuns(5);
}

TEST_F(BackgroundLoopTest, DoesNotRunAfterStop) {
  loop_.Start();
  WaitForRuns(1);
  loop_.Stop();
  const int before = runs();
  loop_.Wake();
  loop_.Stop();
  EXPECT_EQ(runs(), before);
}

}  // namespace
}  // namespace sluice
