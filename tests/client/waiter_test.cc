#include "client/waiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class WaiterTest : public ::testing::Test {
 protected:
  static std::string What() { return "a pull"; }
  absl::Status Wait(const std::function<bool()>& done) {
    MutexLock lock(&mu_);
    return waiter_.Until(&mu_, done, What);
  }

  FakeClock clock_;
  Mutex mu_;
  ChangeSignal changed_;
  Waiter waiter_{&clock_, absl::Seconds(30), &changed_};
};

TEST_F(WaiterTest, EndsWhenTheConditionHoldsEvenAfterAFailure) {
  waiter_.Fail(absl::AbortedError("fenced"));
  EXPECT_TRUE(Wait([] { return true; }).ok());
}

TEST_F(WaiterTest, ReturnsTheFirstFailure) {
  waiter_.Fail(absl::AbortedError("fenced"));
  waiter_.Fail(absl::CancelledError("over"));
  EXPECT_EQ(Wait([] { return false; }).code(), absl::StatusCode::kAborted);
  EXPECT_EQ(waiter_.failure().code(), absl::StatusCode::kAborted);
}

TEST_F(WaiterTest, TimeoutNamesTheConditionAndTheLastRefusal) {
  waiter_.NoteRefusal("pserver 1 is busy");
  const absl::Status status = Wait([this] {
    clock_.Advance(absl::Seconds(16));
    return false;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(status.message()), HasSubstr("a pull"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("pserver 1 is busy"));
}

TEST_F(WaiterTest, AnExcuseBeginsTheTimeAnew) {
  int looks = 0;
  const absl::Status status = Wait([&] {
    clock_.Advance(absl::Seconds(16));
    if (++looks <= 10) waiter_.Excuse();
    return false;
  });
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_EQ(looks, 12);
  waiter_.Excuse();
  EXPECT_EQ(waiter_.excused_at(), clock_.Now());
}

TEST(LongWaitTest, IsReportedAgainAndAgain) {
  FakeClock clock;
  Mutex mu;
  ChangeSignal changed;
  int reports = 0;
  Waiter waiter(&clock, absl::Seconds(30), &changed, [&] { ++reports; });
  const auto wait = [&](absl::Duration step, int looks) {
    MutexLock lock(&mu);
    return waiter.Until(
        &mu,
        [&] {
          clock.Advance(step);
          return --looks == 0;
        },
        [] { return std::string("a pull"); });
  };
  EXPECT_TRUE(wait(absl::Seconds(1), 2).ok());
  EXPECT_EQ(reports, 0) << "it was short";
  EXPECT_TRUE(wait(absl::Seconds(1), 8).ok());
  EXPECT_EQ(reports, 3);
}

TEST_F(WaiterTest, ChangeByAnotherThreadEndsTheWait) {
  bool done = false;
  std::thread other([&] {
    {
      MutexLock lock(&mu_);
      done = true;
    }
    changed_.Notify();
  });
  EXPECT_TRUE(Wait([&] { return done; }).ok());
  other.join();
}

TEST_F(WaiterTest, DescribesTheCurrentWait) {
  MutexLock lock(&mu_);
  EXPECT_EQ(waiter_.Describe(), "");
  std::string described;
  const absl::Status status = waiter_.Until(
      &mu_,
      [&] {
        clock_.Advance(absl::Seconds(2));
        described = waiter_.Describe();
        return true;
      },
      What);
  EXPECT_TRUE(status.ok());
  EXPECT_THAT(described, HasSubstr("a pull"));
  EXPECT_THAT(described, HasSubstr("2.0 s"));
  EXPECT_EQ(waiter_.Describe(), "");
}

TEST_F(WaiterTest, UntilDoneIgnoresFailuresAndTheTimeout) {
  waiter_.Fail(absl::CancelledError("over"));
  MutexLock lock(&mu_);
  int looks = 0;
  waiter_.UntilDone(&mu_, [&] {
    clock_.Advance(absl::Minutes(1));
    return ++looks == 2;
  });
  EXPECT_EQ(looks, 2);
}

}  // namespace
}  // namespace sluice
