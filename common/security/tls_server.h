// The TLS side of a server that does not speak gRPC: the admin port.
//
// TLS 1.2 or later. A certificate that a client shows must be signed by the cluster's CA, or the
// handshake fails. A client may show none: which pages it gets is decided by CheckPageAccess.
// Sessions are not resumed, so each connection is checked against the present files.
//
// Changed files are noticed within `reload_every`, by the first connection after that time. While
// they do not fit together, because they are being replaced, the last good ones stay in use.
//
// Thread safety: safe from any thread.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/security/openssl_types.h"
#include "common/security/peer_identity.h"
#include "common/security/tls_files.h"

namespace sluice {

using TlsSession = std::unique_ptr<SSL, OpensslFree<SSL_free>>;

class TlsServer {
 public:
  struct Options {
    TlsFiles files;
    absl::Duration reload_every = absl::Seconds(10);
    Clock* clock = nullptr;  // required; outlives this
    Env* env = nullptr;      // required; outlives this
  };
  // INVALID_ARGUMENT: see CheckTlsFiles.
  static absl::StatusOr<std::unique_ptr<TlsServer>> Create(Options options);

  // The server's side of a new connection; null when memory has run out.
  TlsSession NewSession();

 private:
  using Context = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;

  explicit TlsServer(Options options) : options_(std::move(options)) {}
  absl::Status Load();

  const Options options_;
  Mutex mutex_;
  Context context_ ABSL_GUARDED_BY(mutex_);
  std::string digest_ ABSL_GUARDED_BY(mutex_);  // of the files that context_ was made of
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Who is at the other end of a session. PERMISSION_DENIED: it has shown no certificate, or see
// PeerOfUris.
absl::StatusOr<PeerIdentity> PeerOf(const SSL& session);

}  // namespace sluice
