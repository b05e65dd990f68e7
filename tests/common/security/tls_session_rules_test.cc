#include "common/security/tls_session_rules.h"

#include <gtest/gtest.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <string>

#include "common/security/tls_server.h"
#include "tests/common/security/tls_client.h"

namespace sluice {
namespace {

std::string FirstCipher(SSL_CTX* context) {
  const TlsSession session(SSL_new(context));
  return SSL_CIPHER_get_name(sk_SSL_CIPHER_value(SSL_get_ciphers(session.get()), 0));
}

TEST(TlsSessionRulesTest, SessionsPreferAes128AndKeepTheOthers) {
  const TlsContext context(SSL_CTX_new(TLS_method()));
  const TlsSession before(SSL_new(context.get()));
  SetTlsSessionRules();
  SetTlsSessionRules();  // a second call changes nothing
  EXPECT_EQ(FirstCipher(context.get()), "TLS_AES_128_GCM_SHA256");
  const TlsSession after(SSL_new(context.get()));
  EXPECT_EQ(sk_SSL_CIPHER_num(SSL_get_ciphers(after.get())),
            sk_SSL_CIPHER_num(SSL_get_ciphers(before.get())));
}

TEST(TlsSessionRulesTest, CiphersThatWereChosenStay) {
  SetTlsSessionRules();
  const TlsContext context(SSL_CTX_new(TLS_method()));
  ASSERT_EQ(SSL_CTX_set_ciphersuites(context.get(), "TLS_AES_256_GCM_SHA384"), 1);
  const TlsSession session(SSL_new(context.get()));
  EXPECT_EQ(FirstCipher(context.get()), "TLS_AES_256_GCM_SHA384");
  for (int i = 0; i < sk_SSL_CIPHER_num(SSL_get_ciphers(session.get())); ++i) {
    EXPECT_STRNE(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(SSL_get_ciphers(session.get()), i)),
                 "TLS_AES_128_GCM_SHA256");
  }
}

}  // namespace
}  // namespace sluice
