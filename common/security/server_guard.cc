#include "common/security/server_guard.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/security/grpc_credentials.h"
#include "common/security/local_sockets.h"
#include "common/security/server_owner.h"

namespace sluice {
namespace {

// The error of a connect that does not wait; 0: the connection stands.
int AwaitConnected(int fd, absl::Duration wait) {
  pollfd writable = {fd, POLLOUT, 0};
  int ready = 0;
  do {
    ready = poll(&writable, 1, static_cast<int>(absl::ToInt64Milliseconds(wait)));
  } while (ready < 0 && errno == EINTR);
  if (ready == 0) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  if (ready < 0 || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) return errno;
  return error;
}

// The kernel may connect a socket to itself when the port is free and one that it gives to clients.
bool IsItsOwnServer(int fd, const TcpEnd& server) {
  sockaddr_storage own = {};
  socklen_t size = sizeof(own);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&own), &size) != 0) return false;
  const auto client = TcpEnd::Of(reinterpret_cast<const sockaddr*>(&own), size);
  return client.has_value() && client->ToText() == server.ToText();
}

absl::StatusOr<FileDescriptor> ConnectTo(const addrinfo& at, absl::Duration wait) {
  const std::optional<TcpEnd> server = TcpEnd::Of(at.ai_addr, at.ai_addrlen);
  if (!server.has_value()) return absl::UnavailableError("neither IPv4 nor IPv6");
  const auto failed = [&](int error) {
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", server->ToText(), ": ", std::strerror(error)));
  };
  FileDescriptor fd(socket(at.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO_TCP));
  if (!fd) return failed(errno);
  const int on = 1;
  setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  int error = connect(fd.get(), at.ai_addr, at.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) error = AwaitConnected(fd.get(), wait);
  if (error != 0) return failed(error);
  if (IsItsOwnServer(fd.get(), *server)) return failed(ECONNREFUSED);
  const absl::Status owned = CheckServerOf(fd.get(), geteuid());
  if (!owned.ok()) {
    return absl::UnavailableError(
        absl::StrCat("no connection to ", server->ToText(), ": ", owned.message()));
  }
  return fd;
}

}  // namespace

ServerGuard::ServerGuard(const std::string& address, const GrpcCredentials& credentials) {
  const absl::StatusOr<Address> server = ParseAddress(address);
  if (credentials.tls() || credentials.serves_any_local_user() || !server.ok() ||
      !IsLoopback(server->host))
    return;
  guarded_ = *server;
}

absl::StatusOr<FileDescriptor> ServerGuard::Connect(absl::Duration wait) const {
  // A resolver might ask other hosts for the one name that is guarded, and wait for them.
  const bool named = guarded_->host == "localhost";
  absl::StatusOr<FileDescriptor> connected = ConnectToNumeric(named ? "::1" : guarded_->host, wait);
  if (named && !connected.ok()) connected = ConnectToNumeric("127.0.0.1", wait);
  return connected;
}

absl::StatusOr<FileDescriptor> ServerGuard::ConnectToNumeric(const std::string& host,
                                                             absl::Duration wait) const {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), absl::StrCat(guarded_->port).c_str(), &hints, &found);
  if (error != 0)
    return absl::UnavailableError(
        absl::StrCat("cannot connect to ", host, ": ", gai_strerror(error)));
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, &freeaddrinfo);
  return ConnectTo(*found, wait);
}

absl::Status ServerGuard::Explain(const absl::Status& failed) const {
  if (!guarded_.has_value()) return failed;
  const absl::Status status = CheckListenersAt(*guarded_, geteuid());
  return status.ok() ? failed : absl::Status(failed.code(), status.message());
}

}  // namespace sluice
