#include "common/transport/retry.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using Code = absl::StatusCode;

TEST(RetryTest, AMessageBeyondTheLimitIsNotWorthAnotherTry) {
  EXPECT_FALSE(MayBeAnsweredLater(absl::ResourceExhaustedError(
      "10.0.0.1:7100: Received message larger than max (70000000 vs. 67108864)")));
}

TEST(RetryTest, ClassifiesEachStatusCode) {
  for (int i = 0; i <= static_cast<int>(Code::kUnauthenticated); ++i) {
    const Code code = static_cast<Code>(i);
    EXPECT_EQ(GotNoAnswer(code), code == Code::kUnavailable || code == Code::kDeadlineExceeded)
        << i;
    EXPECT_EQ(MayBeAnsweredLater(absl::Status(code, "")),
              GotNoAnswer(code) || code == Code::kResourceExhausted)
        << i;
    EXPECT_EQ(PserverNotReady(code), code == Code::kUnavailable || code == Code::kNotFound ||
                                         code == Code::kResourceExhausted)
        << i;
    EXPECT_EQ(RouteIsStale(code), code == Code::kFailedPrecondition) << i;
    EXPECT_EQ(MayGoWellInNextAttempt(code), code == Code::kUnavailable ||
                                                code == Code::kDeadlineExceeded ||
                                                code == Code::kAborted)
        << i;
    EXPECT_EQ(PserverMayBeLost(code),
              code == Code::kUnavailable || code == Code::kDeadlineExceeded ||
                  code == Code::kNotFound || code == Code::kFailedPrecondition)
        << i;
    EXPECT_EQ(StoreMayRecover(code), code == Code::kUnavailable || code == Code::kResourceExhausted)
        << i;
  }
  EXPECT_FALSE(GotNoAnswer(absl::OkStatus()));
  EXPECT_TRUE(GotNoAnswer(absl::DeadlineExceededError("late")));
}

TEST(RetryTest, PausesDoubleUpToASecondAndStartAgainAfterASuccess) {
  Backoff backoff;
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(10));
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(20));
  for (int i = 0; i < 10; ++i) backoff.Next();
  EXPECT_EQ(backoff.Next(), absl::Seconds(1));
  backoff.Reset();
  EXPECT_EQ(backoff.Next(), absl::Milliseconds(10));
}

TEST(RetryTest, SilenceBeginsWhenTheFirstUnansweredCallReturns) {
  SilenceTimer silence;
  const absl::Time begin = absl::UnixEpoch();
  EXPECT_EQ(silence.Unanswered(begin + absl::Seconds(50)), absl::ZeroDuration());
  EXPECT_EQ(silence.Unanswered(begin + absl::Seconds(52)), absl::Seconds(2));
  silence.Answered();
  EXPECT_EQ(silence.Unanswered(begin + absl::Seconds(60)), absl::ZeroDuration());
  EXPECT_EQ(silence.Unanswered(begin + absl::Seconds(63)), absl::Seconds(3));
}

}  // namespace
}  // namespace sluice
