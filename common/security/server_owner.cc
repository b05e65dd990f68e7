#include "common/security/server_owner.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

using Source = LocalSockets::Source;

// Two answers differ while the server accepts or closes the connection. On another processor, the
// last packet of the handshake may be a little late at the server.
constexpr int kAnswers = 10;
constexpr absl::Duration kPause = absl::Milliseconds(2);

absl::Status Judge(const std::string& where, const LocalSocket& server, uid_t user) {
  if (server.user == user || server.user == 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "user ", server.user, " serves at ", where,
      ", and without TLS this process calls only servers of user ", user,
      " and of root; stop that process or use another port. To run one cluster as several users, "
      "use TLS or give its daemons and commands --any_local_user"));
}

// The connection waits to be accepted.
bool Waits(const LocalSocket& server) {
  return server.inode == 0 && server.state == TCP_ESTABLISHED;
}

absl::Status JudgeAll(const std::string& where, const std::vector<LocalSocket>& listeners,
                      uid_t user) {
  for (const LocalSocket& listener : listeners)
    SLUICE_RETURN_IF_ERROR(Judge(where, listener, user));
  return absl::OkStatus();
}

std::optional<TcpEnd> EndOf(int connection, decltype(getsockname)* name) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (name(connection, reinterpret_cast<sockaddr*>(&address), &size) != 0) return std::nullopt;
  return TcpEnd::Of(reinterpret_cast<const sockaddr*>(&address), size);
}

absl::Status Gone() { return absl::UnavailableError("the server has no end of this connection"); }

// The handshake has not ended at the server.
bool Begins(const absl::StatusOr<LocalSocket>& server) {
  return server.ok() ? server->state == TCP_SYN_RECV : absl::IsNotFound(server.status());
}

absl::Status CheckServerOf(const TcpEnd& server, const TcpEnd& client, uid_t user, Source source) {
  const LocalSockets sockets(source);
  for (int i = 0; i < kAnswers; ++i) {
    const absl::StatusOr<LocalSocket> first = sockets.Connection(server, client);
    if (Begins(first)) {
      Clock::Real()->Sleep(kPause);
      continue;
    }
    if (!first.ok()) return first.status();
    if (first->state != TCP_ESTABLISHED) return Gone();
    absl::StatusOr<std::vector<LocalSocket>> listeners;
    // Between the two answers: the queue that the connection is in belongs to one of the listeners
    // seen here.
    if (Waits(*first)) listeners = sockets.Listeners(server);
    const absl::StatusOr<LocalSocket> second = sockets.Connection(server, client);
    if (!second.ok()) return second.status();
    // The server has accepted or closed it meanwhile, so the first answer may mix two states.
    if (!(*first == *second)) continue;
    if (!Waits(*second)) return Judge(server.ToText(), *second, user);
    if (!listeners.ok()) return listeners.status();
    return JudgeAll(server.ToText(), *listeners, user);
  }
  return Gone();
}

}  // namespace

absl::Status CheckServerOf(int connection, uid_t user, Source source) {
  const auto client = EndOf(connection, &getsockname), server = EndOf(connection, &getpeername);
  if (!client.has_value() || !server.has_value()) return Gone();
  const absl::Status status = CheckServerOf(*server, *client, user, source);
  return absl::IsNotFound(status) ? Gone() : status;
}

absl::Status CheckServerOf(int connection, uid_t user) {
  const auto client = EndOf(connection, &getsockname), server = EndOf(connection, &getpeername);
  if (!client.has_value() || !server.has_value()) return Gone();
  // A kernel with socket diagnostics knows this end.
  const auto own = LocalSockets(Source::kSocketDiagnostics).Connection(*client, *server);
  if (absl::IsUnavailable(own.status())) return own.status();
  return CheckServerOf(connection, user,
                       own.ok() ? Source::kSocketDiagnostics : Source::kProcTables);
}

absl::Status CheckListenersAt(const Address& address, uid_t user) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const std::string port = absl::StrCat(address.port);
  if (getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found) != 0) return absl::OkStatus();
  absl::Status status;
  for (const addrinfo* info = found; info != nullptr && status.ok(); info = info->ai_next) {
    const std::optional<TcpEnd> at = TcpEnd::Of(info->ai_addr, info->ai_addrlen);
    // Users of other hosts are not known here; TLS is for those.
    if (!at.has_value() || !at->is_loopback()) continue;
    auto listeners = LocalSockets(Source::kSocketDiagnostics).Listeners(*at);
    if (absl::IsNotFound(listeners.status()) && LocalSockets::KnownSource() == Source::kProcTables)
      listeners = LocalSockets(Source::kProcTables).Listeners(*at);
    if (listeners.ok()) status = JudgeAll(at->ToText(), *listeners, user);
  }
  freeaddrinfo(found);
  return status;
}

}  // namespace sluice
