// Asks the kernel about the TCP sockets of this host: their state, and which user they belong to.
//
// Socket diagnostics cost microseconds, but not every kernel has them. The tables in /proc/net take
// longer the more connections there are.
//
// An answer is not a snapshot: kernels up to 6.16 read the fields of a socket one after the other
// while it may change. A socket that waits to be accepted has no inode, and on these kernels says
// that it belongs to root. server_owner.h draws the conclusions.
//
// Thread safety: safe from any thread.
// Source: sock_diag(7); proc(5), /proc/net/tcp.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

// One end of a connection. IPv4 addresses that are mapped into IPv6 are those of IPv4.
struct TcpEnd {
  std::string address;  // 4 or 16 bytes, in network order
  uint16_t port = 0;

  // Nothing: neither IPv4 nor IPv6.
  static std::optional<TcpEnd> Of(const sockaddr* address, socklen_t size);
  bool is_loopback() const;
  std::string ToText() const;  // host:port
};

struct LocalSocket {
  int state = 0;        // such as TCP_ESTABLISHED
  uid_t user = 0;       // means nothing without an inode
  uint64_t inode = 0;   // 0: no process has it
  uint64_t cookie = 0;  // differs between sockets; 0 in the tables

  bool operator==(const LocalSocket& other) const {
    return state == other.state && user == other.user && inode == other.inode &&
           cookie == other.cookie;
  }
};

class LocalSockets {
 public:
  enum class Source { kSocketDiagnostics, kProcTables };
  // Socket diagnostics once they have found any socket for this process, else the tables.
  static Source KnownSource();

  explicit LocalSockets(Source source) : source_(source) {}

  // The socket at `from` that is connected, or about to be connected, to `to`. NOT_FOUND: there is
  // none, or the kernel lacks this source. UNAVAILABLE: this process has no file descriptor left.
  absl::StatusOr<LocalSocket> Connection(const TcpEnd& from, const TcpEnd& to) const;
  // Listeners that take connections to `at`: with socket diagnostics the one that the kernel
  // would choose, in the tables all. Status codes as above.
  absl::StatusOr<std::vector<LocalSocket>> Listeners(const TcpEnd& at) const;

 private:
  const Source source_;
};

}  // namespace sluice
