#include "common/daemon/tls_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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
