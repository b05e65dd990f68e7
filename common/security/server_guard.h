// Keeps a client on loopback from speaking to a server of another user of this host.
//
// Without TLS nothing says who serves at a port, and gRPC connects again by itself whenever a
// connection has ended. So each connection is checked (server_owner.h) when it has been
// established, before gRPC learns of it and sends its first byte. For this, the file defines
// connect and getsockopt for the whole process, the libraries included, in front of those of the C
// library: connect(2) tells the caller of a non-blocking connect to read SO_ERROR for its outcome.
// For a guarded address, the two report these errors instead of success:
//
// - EACCES: another user has the server's end.
// - ECONNRESET: the server has no end of the connection, or this process has no file descriptor
//   left with which to ask.
//
// The caller then closes the connection, and gRPC tries again with its usual back-off. The check
// takes some ten microseconds, and at most 20 ms when the server does not end the handshake.
//
// Thread safety: safe from any thread.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "common/config/address.h"

namespace sluice {

class GrpcCredentials;

class ServerGuard {
 public:
  // From now on, this process connects to the port of `address` on loopback only where its own user
  // or root serves. Does nothing when `credentials` have TLS or trust any local user, or when
  // `address` is not on loopback (--insecure has allowed it).
  ServerGuard(const std::string& address, const GrpcCredentials& credentials);

  // For a call that got no answer: says who serves there when it is another user, with the fix,
  // else returns `failed`. Keeps its code, because the right server may come back.
  absl::Status Explain(const absl::Status& failed) const;

 private:
  std::optional<Address> guarded_;
};

}  // namespace sluice
