#include "common/security/tls_session_rules.h"

#include <openssl/ssl.h>

#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

constexpr char kPreferred[] =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

// The names of the ciphers for TLS 1.3 that a session offers, in its order.
std::string CiphersOf(const SSL* session) {
  std::string names;
  const STACK_OF(SSL_CIPHER)* const ciphers = SSL_get_ciphers(session);
  for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); ++i) {
    const SSL_CIPHER* const cipher = sk_SSL_CIPHER_value(ciphers, i);
    if (std::strcmp(SSL_CIPHER_get_version(cipher), "TLSv1.3") != 0) continue;
    absl::StrAppend(&names, names.empty() ? "" : ":", SSL_CIPHER_get_name(cipher));
  }
  return names;
}

// Makes the session neither issue nor accept tickets, and keeps it out of the cache (TLS 1.2).
void ForbidResumption(SSL* session) {
  SSL_set_options(session, SSL_OP_NO_TICKET);
  SSL_set_num_tickets(session, 0);
  SSL_CTX* const context = SSL_get_SSL_CTX(session);
  if (SSL_CTX_get_session_cache_mode(context) != SSL_SESS_CACHE_OFF)
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
}

void OnNew(void* new_session, void*, CRYPTO_EX_DATA*, int, long, void*) {
  SSL* const session = static_cast<SSL*>(new_session);
  ForbidResumption(session);
  if (CiphersOf(session) == OSSL_default_ciphersuites()) SSL_set_ciphersuites(session, kPreferred);
}

}  // namespace

void SetTlsSessionRules() {
  // OpenSSL calls this function for each session.
  [[maybe_unused]] static const int index =
      SSL_get_ex_new_index(0, nullptr, &OnNew, nullptr, nullptr);
}

}  // namespace sluice
