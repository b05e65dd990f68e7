#include "common/security/handshake_failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(HandshakeFailureTest, AnExpiredCertificateIsToldFromOneOfAnotherAuthority) {
  const std::string expired = CertificateRefusal(X509_V_ERR_CERT_HAS_EXPIRED);
  const std::string foreign = CertificateRefusal(X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY);
  EXPECT_THAT(expired, HasSubstr("expired"));
  EXPECT_THAT(foreign, HasSubstr("--tls_ca"));
  EXPECT_NE(expired, foreign);
}

TEST(HandshakeFailureTest, EachCauseHasItsReason) {
  HandshakeEnd cut;
  cut.state = TLS_ST_SR_CLNT_HELLO;
  HandshakeEnd refused = cut;
  refused.given_up = true;
  refused.verify_result = X509_V_ERR_CERT_HAS_EXPIRED;
  refused.sent_alert = SSL_AD_CERTIFICATE_EXPIRED;
  HandshakeEnd none = cut;
  none.given_up = true;
  none.state = TLS_ST_SR_CERT;
  none.sent_alert = SSL_AD_CERTIFICATE_REQUIRED;
  HandshakeEnd old = cut;
  old.given_up = true;
  old.sent_alert = SSL_AD_PROTOCOL_VERSION;
  HandshakeEnd plain = old;
  plain.state = TLS_ST_BEFORE;
  HandshakeEnd unsure = cut;
  unsure.given_up = true;
  unsure.received_alert = SSL_AD_UNKNOWN_CA;
  HandshakeEnd other = cut;
  other.given_up = true;
  other.received_alert = SSL_AD_USER_CANCELLED;
  HandshakeEnd ciphers = old;
  ciphers.sent_alert = SSL_AD_HANDSHAKE_FAILURE;
  HandshakeEnd silent = old;
  silent.sent_alert = HandshakeEnd::kNoAlert;
  std::set<std::string> reasons;
  for (const HandshakeEnd& end : {cut, refused, none, old, plain, unsure, other, ciphers, silent})
    reasons.insert(HandshakeFailure(end));
  EXPECT_EQ(reasons.size(), 9u);
  EXPECT_EQ(HandshakeFailure(refused), CertificateRefusal(X509_V_ERR_CERT_HAS_EXPIRED));
  none.sent_alert = SSL_AD_HANDSHAKE_FAILURE;  // of TLS 1.2
  EXPECT_EQ(reasons.count(HandshakeFailure(none)), 1u);
  EXPECT_THAT(HandshakeFailure(none), HasSubstr("--tls_cert"));
  EXPECT_THAT(HandshakeFailure(plain), HasSubstr("does not speak TLS"));
}

}  // namespace
}  // namespace sluice
