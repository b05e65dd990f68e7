// Keeps a client on loopback from speaking to a server of another user of this host.
//
// Without TLS nothing says who serves at a port. So the client connects itself, asks the kernel who
// has the server's end (server_owner.h), and sends its first byte only when that is its own user or
// root. gRPC gets the descriptor afterwards (common/transport/server_channel.h), because it has no
// place for such a check between connecting and sending.
//
// Cost: some ten microseconds a connection, and at most 20 ms when the server does not end the
// handshake.
//
// Thread safety: immutable.
#pragma once

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/config/address.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

class GrpcCredentials;

class ServerGuard {
 public:
  // Guards `address` (host:port), unless `credentials` have TLS or trust any local user, or the
  // address is not on loopback (--insecure has allowed it).
  ServerGuard(const std::string& address, const GrpcCredentials& credentials);

  // Whether connections to the address must come from Connect.
  bool guards() const { return guarded_.has_value(); }

  // A connection to the address whose server belongs to this user or root, with TCP_NODELAY, that
  // does not block. `localhost` is ::1, and 127.0.0.1 when that fails; no resolver is asked. Waits
  // at most `wait` for each handshake, so twice that for `localhost`, and then 20 ms: on loopback a
  // handshake ends at once unless the server's queue is full. REQUIRES: guards().
  // UNAVAILABLE: nobody listens, another user serves there (with the fix), or this process has no
  // file descriptor left.
  absl::StatusOr<FileDescriptor> Connect(absl::Duration wait) const;

  // For a call that got no answer: says who serves there when it is another user, with the fix,
  // else returns `failed`. Keeps its code, because the right server may come back.
  absl::Status Explain(const absl::Status& failed) const;

 private:
  absl::StatusOr<FileDescriptor> ConnectToNumeric(const std::string& host,
                                                  absl::Duration wait) const;

  std::optional<Address> guarded_;
};

}  // namespace sluice
