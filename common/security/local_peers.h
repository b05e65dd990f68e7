// Tells who owns the other end of a TCP connection on this host.
//
// Without TLS, a connection to a loopback address comes from some process of this host. The kernel
// knows which user owns its socket, so that daemons can keep other users of the host out without
// any secret.
//
// Thread safety: immutable.
// Source: sock_diag(7); proc(5), /proc/net/tcp.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace sluice {

class LocalPeers {
 public:
  // For connections to the server that listens at `host`:`port` (a loopback address or "localhost",
  // and the port that was bound), from peers whose user is `user` or root.
  LocalPeers(const std::string& host, int port, uid_t user);

  // `peer`: as gRPC names it, such as "ipv4:127.0.0.1:4711" or "ipv6:%5B::1%5D:4711".
  // PERMISSION_DENIED: another user owns the connection, or it cannot be found out who does.
  // UNAVAILABLE: it cannot be found out while this process has no file descriptor left.
  absl::Status Check(const std::string& peer) const;

  // The two ways to ask. Socket diagnostics cost microseconds, but not every kernel has them. The
  // table takes longer the more connections there are, and is read only on such a kernel: else
  // peers that hang up at once, which are found in neither, would keep the server busy.
  enum class Source { kSocketDiagnostics, kProcTable };
  Source source() const { return source_; }
  // NOT_FOUND: there is no such open connection. UNAVAILABLE: as Check.
  absl::StatusOr<uid_t> OwnerOf(const std::string& peer, Source source) const;

 private:
  struct Endpoint {
    int family = 0;
    std::string address;  // 4 or 16 bytes
    int port = 0;
  };
  static absl::StatusOr<Endpoint> Parse(const std::string& peer);

  const uid_t user_;
  std::vector<Endpoint> local_;
  Source source_ = Source::kProcTable;
};

}  // namespace sluice
