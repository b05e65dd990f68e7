#include "common/daemon/scheduler_wait.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/common/daemon/refusing_scheduler.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class UnreachableScheduler : public RefusingScheduler {
 public:
  std::string WhyNotReady() override { return why; }
  std::string WhyRefused() override { return refused; }
  std::string why = "connection refused";
  std::string refused;
};

TEST(WaitingLinesTest, ALineSaysHowLongAndWhy) {
  UnreachableScheduler scheduler;
  WaitingLines lines(&scheduler, absl::Seconds(120));
  EXPECT_THAT(lines.Next(absl::Milliseconds(3200)),
              AllOf(HasSubstr("scheduler:1"), HasSubstr("(3 of 120 s)"), HasSubstr(scheduler.why)));
  scheduler.refused = "user nobody serves there";
  EXPECT_THAT(lines.Next(absl::Seconds(6)),
              AllOf(HasSubstr(scheduler.refused), Not(HasSubstr(scheduler.why))));
}

TEST(WaitingLinesTest, AReasonIsRepeatedOnlyNowAndThen) {
  UnreachableScheduler scheduler;
  WaitingLines lines(&scheduler, absl::Seconds(120));
  int said = 0;
  for (int s = 3; s <= 60; s += 3)
    said += lines.Next(absl::Seconds(s)).find(scheduler.why) != std::string::npos;
  EXPECT_EQ(said, 2) << "after 3 s and after 33 s";
  scheduler.why = "";
  EXPECT_THAT(lines.Next(absl::Seconds(63)), HasSubstr("(63 of 120 s)"));
  scheduler.why = "certificate verify failed";
  EXPECT_THAT(lines.Next(absl::Seconds(66)), HasSubstr(scheduler.why)) << "it is another one";
  EXPECT_THAT(lines.Next(absl::Seconds(69)), Not(HasSubstr(scheduler.why)));
}

TEST(SchedulerDidNotAnswerTest, TheAdviceFitsTheReason) {
  UnreachableScheduler scheduler;
  const auto message = [&] {
    const absl::Status status = SchedulerDidNotAnswer(&scheduler, absl::Seconds(8));
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
    EXPECT_THAT(status.message(), AllOf(HasSubstr("scheduler:1"), HasSubstr("8s")));
    return std::string(status.message());
  };
  EXPECT_THAT(message(), AllOf(HasSubstr(scheduler.why), HasSubstr("--scheduler")));
  scheduler.why = "Socket closed; " + TlsAdvice("Socket closed", false);
  EXPECT_THAT(message(), AllOf(HasSubstr(scheduler.why), HasSubstr("--scheduler")));
  const std::string unverified = "certificate verify failed";
  scheduler.why = unverified + "; " + TlsAdvice(unverified, true);
  EXPECT_THAT(message(), AllOf(HasSubstr(scheduler.why), Not(HasSubstr("--scheduler"))));
  scheduler.refused = "user nobody serves there";
  EXPECT_THAT(message(), AllOf(HasSubstr(scheduler.refused), Not(HasSubstr("--tls_cert"))));
}

constexpr char kClosed[] = "last error: UNAVAILABLE: ipv4:127.0.0.1:7000: Socket closed";
constexpr char kReset[] = "UNAVAILABLE: ipv4:127.0.0.1:7000: recvmsg:Connection reset by peer";
constexpr char kUntrusted[] =
    "Ssl handshake failed: SSL_ERROR_SSL: error:0A000086:SSL routines::certificate verify failed";
constexpr char kPlain[] =
    "Ssl handshake failed: SSL_ERROR_SSL: error:0A00010B:SSL routines::wrong version number";

TEST(TlsAdviceTest, WithoutTlsAClosedConnectionMayNeedTheFlags) {
  for (const char* error : {kClosed, kReset})
    EXPECT_THAT(TlsAdvice(error, false),
                AllOf(HasSubstr("--tls_cert"), HasSubstr("--tls_key"), HasSubstr("--tls_ca")));
}

TEST(TlsAdviceTest, WithTlsTheCausesAreTold) {
  EXPECT_THAT(TlsAdvice(kUntrusted, true), AllOf(HasSubstr("--tls_ca"), Not(HasSubstr("_cert"))));
  EXPECT_THAT(TlsAdvice("CERTIFICATE_VERIFY_FAILED", true), TlsAdvice(kUntrusted, true));
  EXPECT_THAT(TlsAdvice(kPlain, true), HasSubstr("no TLS"));
  EXPECT_THAT(TlsAdvice(kClosed, true), AllOf(HasSubstr("--tls_cert"), Not(HasSubstr("--tls_ca"))));
  EXPECT_EQ(TlsAdvice("tlsv1 alert unknown ca", true), TlsAdvice(kClosed, true));
}

TEST(TlsAdviceTest, OtherErrorsHaveNone) {
  for (const bool tls : {false, true}) {
    EXPECT_EQ(TlsAdvice("connect: Connection refused (111)", tls), "");
    EXPECT_EQ(TlsAdvice("", tls), "");
  }
}

TEST(TlsAdviceTest, AMessageWithCertainAdviceIsRecognized) {
  for (const char* error : {kUntrusted, kPlain})
    EXPECT_TRUE(HasCertainTlsAdvice(absl::StrCat(error, "; ", TlsAdvice(error, true)))) << error;
  // The scheduler may just have died.
  for (const bool tls : {false, true})
    EXPECT_FALSE(HasCertainTlsAdvice(absl::StrCat(kClosed, "; ", TlsAdvice(kClosed, tls))));
  EXPECT_FALSE(HasCertainTlsAdvice(kUntrusted));
}

}  // namespace
}  // namespace sluice
