#include "common/security/client_owner.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <optional>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

using Source = LocalSockets::Source;

struct Ends {
  TcpEnd here, there;
};

std::optional<TcpEnd> EndOf(int (*name_of)(int, sockaddr*, socklen_t*), int fd) {
  sockaddr_storage name = {};
  socklen_t size = sizeof(name);
  if (name_of(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return std::nullopt;
  return TcpEnd::Of(reinterpret_cast<const sockaddr*>(&name), size);
}

absl::Status Gone() {
  return absl::NotFoundError("the caller closed its connection before it was accepted");
}

absl::StatusOr<Ends> EndsOf(int connection) {
  const auto here = EndOf(&getsockname, connection), there = EndOf(&getpeername, connection);
  if (!here.has_value() || !there.has_value()) return Gone();
  return Ends{*here, *there};
}

bool IsEstablished(int fd) {
  tcp_info info = {};
  // The second time: see the header.
  for (int times = 0; times < 2; ++times) {
    socklen_t size = sizeof(info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return false;
  }
  return info.tcpi_state == TCP_ESTABLISHED;
}

// Decides who owns the connection, after the kernel has answered about the client's end.
absl::StatusOr<uid_t> Conclude(int connection, const absl::StatusOr<LocalSocket>& client) {
  // After the question, in this order: only then was the answer about the process that connected
  // (see the header).
  if (!IsEstablished(connection)) return Gone();
  if (absl::IsUnavailable(client.status())) return client.status();
  if (client.ok() && client->state == TCP_ESTABLISHED && client->inode != 0) return client->user;
  return absl::UnknownError("the kernel names no process at the caller's end of the connection");
}

}  // namespace

absl::StatusOr<uid_t> OwnerOfClient(int connection) {
  SLUICE_ASSIGN_OR_RETURN(const Ends ends, EndsOf(connection));
  const LocalSockets kernel(Source::kSocketDiagnostics), tables(Source::kProcTables);
  auto client = kernel.Connection(ends.there, ends.here);
  // A kernel with diagnostics knows our own end, as long as it is established.
  if (absl::IsNotFound(client.status()) &&
      absl::IsNotFound(kernel.Connection(ends.here, ends.there).status()) &&
      IsEstablished(connection)) {
    client = tables.Connection(ends.there, ends.here);
  }
  return Conclude(connection, client);
}

absl::StatusOr<uid_t> OwnerOfClientForTest(int connection, Source source,
                                           const std::function<void()>& before) {
  SLUICE_ASSIGN_OR_RETURN(const Ends ends, EndsOf(connection));
  before();
  return Conclude(connection, LocalSockets(source).Connection(ends.there, ends.here));
}

}  // namespace sluice
