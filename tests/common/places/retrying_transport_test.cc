#include "common/places/retrying_transport.h"

#include "gmock/gmock.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/places/fake_transport.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class RetryingTransportTest : public ::testing::Test {
 protected:
  RetryingTransport Make(double draw = 1) {
    RetryingTransport::Options options;
    options.tries = 4;
    options.pause = absl::Seconds(1);
    options.most_pause = absl::Seconds(3);
    options.draw = [draw] { return draw; };
    options.clock = &clock_;
    options.use = &use_;
    return RetryingTransport(&base_, std::move(options));
  }
  absl::Duration Waited() { return clock_.Now() - absl::UnixEpoch(); }

  FakeClock clock_;
  FakeTransport base_;
  PlaceUse use_;
};

TEST_F(RetryingTransportTest, BusyPlacesAndLostAnswersAreAskedAgain) {
  int n = 0;
  base_.answer = [&](const HttpRequest&) -> absl::StatusOr<HttpResponse> {
    switch (n++) {
      case 0:
        return Answer(503);
      case 1:
        return absl::UnavailableError("timeout");
      case 2:
        return Answer(206, "abc");  // of 5 bytes
      default:
        return Answer(206, "abcde");
    }
  };
  HttpRequest request;
  request.range_bytes = 5;
  const auto answer = Make().Send(request);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->body, "abcde");
  EXPECT_EQ(Waited(), absl::Seconds(1 + 2 + 3)) << "doubled, up to most_pause";
  EXPECT_EQ(use_.requests, 4u);
  EXPECT_EQ(use_.retries, 3u);
  EXPECT_EQ(use_.bytes, 8u);
}

TEST_F(RetryingTransportTest, PausesAreDrawnAndComeOnTopOfWhatThePlaceAsks) {
  int n = 0;
  base_.answer = [&](const HttpRequest&) {
    return n++ == 0 ? Answer(429, "", {{"retry-after", "7"}}) : Answer(n == 2 ? 500 : 200);
  };
  EXPECT_EQ(Make(0.25).Send({})->status, 200);
  EXPECT_EQ(Waited(), absl::Milliseconds(7250 + 500));
}

// A clock during whose first sleep something happens.
class InterruptedClock : public FakeClock {
 public:
  std::function<void()> interrupt;
  void Sleep(absl::Duration d) override {
    FakeClock::Sleep(d);
    interrupt();
  }
};

TEST_F(RetryingTransportTest, AStopEndsThePauseAndLaterRequests) {
  InterruptedClock clock;
  RetryingTransport::Options options;
  options.draw = [] { return 1; };
  options.clock = &clock;
  options.use = &use_;
  RetryingTransport transport(&base_, std::move(options));
  clock.interrupt = [&] { transport.Stop(); };
  base_.answer = [](const HttpRequest&) { return Answer(503, "", {{"retry-after", "30"}}); };
  EXPECT_EQ(transport.Send({}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_LT(clock.Now() - absl::UnixEpoch(), absl::Seconds(1));
  EXPECT_EQ(transport.Send({}).status().code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(use_.requests, 1u);
}

TEST_F(RetryingTransportTest, AllTriesTogetherAreLimited) {
  // Each try lasts 20 s and asks for 5 s more.
  base_.answer = [this](const HttpRequest&) {
    clock_.Advance(absl::Seconds(20));
    return Answer(503, "", {{"retry-after", "5"}});
  };
  const auto send = [this](size_t range_bytes) {
    RetryingTransport::Options options;
    options.tries = 100;
    options.draw = [] { return 0; };
    options.clock = &clock_;
    options.use = &use_;
    HttpRequest request;
    request.range_bytes = range_bytes;
    const absl::Time begin = clock_.Now();
    EXPECT_EQ(RetryingTransport(&base_, std::move(options)).Send(request)->status, 503);
    return clock_.Now() - begin;
  };
  EXPECT_EQ(send(0), absl::Seconds(20 + 25 + 25)) << "no try begins after 60 s";
  EXPECT_EQ(send(1'000'000), absl::Seconds(20 + 4 * 25)) << "50 s more for 1 MB";
}

TEST_F(RetryingTransportTest, AnAnswerForWhichItWaitedTheWholeTimeIsAskedForAgain) {
  int n = 0;
  base_.answer = [&](const HttpRequest&) -> absl::StatusOr<HttpResponse> {
    clock_.Advance(absl::Seconds(60));
    if (n++ == 0) return absl::UnavailableError("timeout");
    return Answer(200);
  };
  const auto answer = Make().Send({});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(use_.retries, 1u);
}

TEST_F(RetryingTransportTest, FinalAnswersAreNotAskedAgain) {
  base_.answer = [](const HttpRequest&) { return Answer(403); };
  EXPECT_EQ(Make().Send({})->status, 403);
  base_.answer = [](const HttpRequest&) { return absl::PermissionDeniedError("no"); };
  EXPECT_EQ(Make().Send({}).status().code(), absl::StatusCode::kPermissionDenied);
  EXPECT_EQ(use_.requests, 2u);
}

TEST_F(RetryingTransportTest, GivesUpAndSaysHowOftenItTried) {
  base_.answer = [](const HttpRequest&) { return absl::UnavailableError("timeout"); };
  const absl::Status status = Make().Send({}).status();
  EXPECT_THAT(std::string(status.message()), HasSubstr("timeout (tried 4 times)"));
  base_.answer = [](const HttpRequest&) { return Answer(503); };
  EXPECT_EQ(Make().Send({})->status, 503);
}

}  // namespace
}  // namespace sluice
