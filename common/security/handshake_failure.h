// Why a TLS handshake with a server of ours has failed, in words for the audit log.
//
// Thread safety: pure functions.
#pragma once

#include <openssl/ssl.h>

#include <string>

namespace sluice {

// The client's certificate is not valid. `verify_result`: SSL_get_verify_result, not X509_V_OK.
std::string CertificateRefusal(long verify_result);

// What is known of a server's session whose handshake has not succeeded.
struct HandshakeEnd {
  static constexpr int kNoAlert = -1;
  long verify_result = X509_V_OK;
  // The last message that was expected or sent, and whether OpenSSL has given the handshake up.
  OSSL_HANDSHAKE_STATE state = TLS_ST_BEFORE;
  bool given_up = false;
  // The fatal alerts of both sides (SSL_AD_...).
  int sent_alert = kNoAlert, received_alert = kNoAlert;
};
// Names the cause and, where there is one, the fix.
std::string HandshakeFailure(const HandshakeEnd& end);

}  // namespace sluice
