#include "common/security/server_guard.h"

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>

#include "common/security/grpc_credentials.h"
#include "common/security/local_sockets.h"
#include "common/security/server_owner.h"

namespace sluice {
namespace {

// Relaxed: a port is set before the channel is made that connects to it.
std::array<std::atomic<bool>, 65536> guarded_ports;

// Resolvers connect datagram sockets to an address to learn the way to it.
bool IsStream(int fd) {
  int type = 0;
  socklen_t size = sizeof(type);
  return syscall(SYS_getsockopt, fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type == SOCK_STREAM;
}

bool IsGuarded(int fd, const sockaddr* server, socklen_t size) {
  const std::optional<TcpEnd> end = TcpEnd::Of(server, size);
  return end.has_value() && end->is_loopback() &&
         guarded_ports[end->port].load(std::memory_order_relaxed) && IsStream(fd);
}

// The error to report for an established connection to a guarded address; 0: none.
int ErrorOf(int connection) {
  const absl::Status status = CheckServerOf(connection, geteuid());
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return 0;
    case absl::StatusCode::kPermissionDenied:
      return EACCES;
    default:
      return ECONNRESET;
  }
}

int Connect(int fd, const sockaddr* server, socklen_t size) {
  const int result = static_cast<int>(syscall(SYS_connect, fd, server, size));
  if (result != 0 || !IsGuarded(fd, server, size)) return result;
  const int error = ErrorOf(fd);
  if (error == 0) return 0;
  errno = error;
  return -1;
}

// `error`: the socket's error, as the kernel reports it.
void CheckOutcome(int fd, int* error) {
  sockaddr_storage server = {};
  socklen_t size = sizeof(server);
  const int before = errno;
  if (*error == 0 && getpeername(fd, reinterpret_cast<sockaddr*>(&server), &size) == 0 &&
      IsGuarded(fd, reinterpret_cast<const sockaddr*>(&server), size))
    *error = ErrorOf(fd);
  errno = before;
}

}  // namespace

ServerGuard::ServerGuard(const std::string& address, const GrpcCredentials& credentials) {
  const absl::StatusOr<Address> server = ParseAddress(address);
  if (credentials.tls() || credentials.serves_any_local_user() || !server.ok() ||
      !IsLoopback(server->host))
    return;
  guarded_ = *server;
  guarded_ports[server->port].store(true, std::memory_order_relaxed);
}

absl::Status ServerGuard::Explain(const absl::Status& failed) const {
  if (!guarded_.has_value()) return failed;
  const absl::Status status = CheckListenersAt(*guarded_, geteuid());
  return status.ok() ? failed : absl::Status(failed.code(), status.message());
}

}  // namespace sluice

// The linker resolves the calls of shared libraries to these, because a program comes before its
// libraries.
extern "C" {

__attribute__((visibility("default"))) int connect(int fd, const sockaddr* server, socklen_t size) {
  return sluice::Connect(fd, server, size);
}

__attribute__((visibility("default"))) int getsockopt(int fd, int level, int name, void* value,
                                                      socklen_t* size) __THROW {
  const int result = static_cast<int>(syscall(SYS_getsockopt, fd, level, name, value, size));
  if (result == 0 && level == SOL_SOCKET && name == SO_ERROR && *size == sizeof(int))
    sluice::CheckOutcome(fd, static_cast<int*>(value));
  return result;
}

}  // extern "C"
