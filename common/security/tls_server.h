// The TLS side of a server that does not speak gRPC: the admin port.
//
// TLS 1.2 or later. A certificate that a client shows must be signed by the cluster's CA, or the
// handshake fails. A client may show none: which pages it gets is decided by CheckPageAccess.
// Sessions are not resumed, so each connection is checked against the present files.
//
// Changed files are noticed within `reload_every`, by the first connection after that time. They
// are checked as they were at the start, and must be for the same role. While they do not pass,
// because they are being replaced or because somebody has made a mistake, the last good ones stay
// in use, and `log` says so.
//
// Thread safety: safe from any thread.
#pragma once

#include <openssl/ssl.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/mutex.h"
#include "common/security/peer_identity.h"
#include "common/security/pem_reader.h"
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
    // Told when changed files cannot be used, at most every `tell_every` unless the reason changes,
    // and when they can be again. May be empty.
    std::function<void(const std::string&)> log;
    absl::Duration tell_every = absl::Minutes(10);
  };
  // INVALID_ARGUMENT: see CheckTlsFiles.
  static absl::StatusOr<std::unique_ptr<TlsServer>> Create(Options options);

  // The server's side of a new connection; null when memory has run out.
  TlsSession NewSession();
  // When the certificate in use ends.
  absl::Time certificate_end() const;

 private:
  using Context = std::unique_ptr<SSL_CTX, OpensslFree<SSL_CTX_free>>;

  explicit TlsServer(Options options) : options_(std::move(options)) {}
  absl::Status Load();
  void Tell(const absl::Status& loaded);

  const Options options_;
  PeerRole role_ = PeerRole::kOperator;  // constant after Create
  mutable Mutex mutex_;
  Context context_ ABSL_GUARDED_BY(mutex_);
  std::string digest_ ABSL_GUARDED_BY(mutex_);  // of the files that context_ was made of
  absl::Time certificate_end_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time looked_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::string trouble_ ABSL_GUARDED_BY(mutex_);  // of the last look
  absl::Time told_at_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
};

// Who is at the other end of a session. PERMISSION_DENIED: it has shown no certificate, or see
// PeerOfUris.
absl::StatusOr<PeerIdentity> PeerOf(const SSL& session);

}  // namespace sluice
