#include "common/security/handshake_failure.h"

#include <openssl/x509.h>
#include <openssl/x509_vfy.h>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

const char* FixOf(long verify_result) {
  switch (verify_result) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
      return "; make a new one with `sluice certs`, and compare the hosts' clocks";
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
      return "; it must be signed by the CA in this server's --tls_ca";
    default:
      return "";
  }
}

bool IsAboutACertificate(int alert) {
  switch (alert) {
    case SSL_AD_BAD_CERTIFICATE:
    case SSL_AD_UNSUPPORTED_CERTIFICATE:
    case SSL_AD_CERTIFICATE_REVOKED:
    case SSL_AD_CERTIFICATE_EXPIRED:
    case SSL_AD_CERTIFICATE_UNKNOWN:
    case SSL_AD_UNKNOWN_CA:
      return true;
    default:
      return false;
  }
}

}  // namespace

std::string CertificateRefusal(long verify_result) {
  return absl::StrCat("the client's certificate is refused: ",
                      X509_verify_cert_error_string(verify_result), FixOf(verify_result));
}

std::string HandshakeFailure(const HandshakeEnd& end) {
  if (end.verify_result != X509_V_OK) return CertificateRefusal(end.verify_result);
  if (end.received_alert != HandshakeEnd::kNoAlert) {
    const char* const alert = SSL_alert_desc_string_long(end.received_alert);
    if (!IsAboutACertificate(end.received_alert))
      return absl::StrCat("the client has ended the handshake: ", alert);
    return absl::StrCat("the client has refused this server's certificate: ", alert,
                        "; both must have the same CA in --tls_ca");
  }
  if (!end.given_up) return "the client has closed the connection, or taken too long";
  // OpenSSL sends the alert of TLS 1.3 for a missing certificate, and a general one in TLS 1.2.
  if (end.sent_alert == SSL_AD_CERTIFICATE_REQUIRED ||
      (end.sent_alert == SSL_AD_HANDSHAKE_FAILURE && end.state == TLS_ST_SR_CERT)) {
    return "the client has shown no certificate; give it --tls_cert and --tls_key";
  }
  if (end.state == TLS_ST_BEFORE) return "the client does not speak TLS; give it --tls_ca";
  if (end.sent_alert == SSL_AD_PROTOCOL_VERSION)
    return "the client does not offer TLS 1.2 or later; update it";
  if (end.sent_alert == HandshakeEnd::kNoAlert) return "the handshake is broken";
  return absl::StrCat("the handshake is refused: ", SSL_alert_desc_string_long(end.sent_alert));
}

}  // namespace sluice
