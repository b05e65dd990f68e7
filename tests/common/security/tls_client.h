// The client's side of TLS, for tests of servers that speak it without gRPC.
#pragma once

#include <openssl/ssl.h>

#include <memory>

#include "common/security/tls_server.h"
#include "gtest/gtest.h"

namespace sluice {

using TlsContext = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;

// Trusts the CA of `files`, and shows their certificate if they name one.
inline TlsContext TlsClient(const TlsFiles& files) {
  TlsContext context(SSL_CTX_new(TLS_client_method()));
  EXPECT_EQ(SSL_CTX_load_verify_locations(context.get(), files.ca.c_str(), nullptr), 1);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  if (files.cert.empty()) return context;
  EXPECT_EQ(SSL_CTX_use_certificate_chain_file(context.get(), files.cert.c_str()), 1);
  EXPECT_EQ(SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM), 1);
  return context;
}

}  // namespace sluice
