#include "common/shared_memory/unix_socket.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr int kBacklog = 128;
constexpr size_t kMaxName = 100;

absl::Status SocketFailed(const char* operation, const std::string& name) {
  return absl::ErrnoToStatus(errno, absl::StrCat("local socket ", name, ": ", operation));
}

absl::StatusOr<FileDescriptor> Open(const std::string& name, sockaddr_un* address,
                                    socklen_t* length) {
  if (name.empty() || name.size() > kMaxName) {
    return absl::InvalidArgumentError(absl::StrCat("the name of a local socket has ", name.size(),
                                                   " bytes, not 1 to ", kMaxName));
  }
  // Packets keep their borders, so that a reader needs no buffer for half a message of a peer that
  // stalls.
  FileDescriptor fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return SocketFailed("socket", name);
  *address = sockaddr_un();
  address->sun_family = AF_UNIX;
  // The first byte stays zero: the name is abstract.
  std::memcpy(address->sun_path + 1, name.data(), name.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return fd;
}

// The kernel took these credentials when the peer connected or began to listen.
absl::Status CheckUser(int fd) {
  ucred peer;
  socklen_t length = sizeof(peer);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return absl::ErrnoToStatus(errno, "local socket: the peer's user is not known");
  // Abstract names have no permissions: any user of the host can connect, or listen first.
  if (peer.uid == 0 || peer.uid == geteuid()) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat("the peer of a local socket is process ",
                                                  peer.pid, " of user ", peer.uid,
                                                  ", not of this one (", geteuid(), ") or root"));
}

bool PeerIsGone(int error) { return error == EPIPE || error == ECONNRESET || error == ENOTCONN; }

absl::Status Gone() { return absl::UnavailableError("the peer's process has ended"); }

}  // namespace

absl::StatusOr<UnixConnection> UnixConnection::Connect(const std::string& name) {
  sockaddr_un address;
  socklen_t length = 0;
  SLUICE_ASSIGN_OR_RETURN(FileDescriptor fd, Open(name, &address, &length));
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == ECONNREFUSED) {
      return absl::NotFoundError(
          absl::StrCat("nobody listens at the local socket ", name, " in this network namespace"));
    }
    return SocketFailed("connect", name);
  }
  // Before anything is sent: the server could be another user's who took the name.
  SLUICE_RETURN_IF_ERROR(CheckUser(fd.get()));
  return UnixConnection(std::move(fd));
}

absl::Status UnixConnection::Send(const std::string& bytes, const std::vector<int>& descriptors) {
  iovec part = {const_cast<char*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (!descriptors.empty()) {
    const size_t size = descriptors.size() * sizeof(int);
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(size);
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    // The kernel duplicates the descriptors for the receiver; this process keeps its own.
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(size);
    std::memcpy(CMSG_DATA(header), descriptors.data(), size);
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(fd(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return absl::OkStatus();
  // Never waits: a peer that does not read must not hold up this process.
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ETOOMANYREFS) {
    return absl::ResourceExhaustedError("the peer of a local socket does not read");
  }
  if (PeerIsGone(errno)) return Gone();
  return absl::ErrnoToStatus(errno, "local socket: send");
}

absl::StatusOr<UnixConnection::Packet> UnixConnection::Receive(absl::Duration timeout) {
  const auto deadline = std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(timeout);
  Packet packet;
  packet.bytes.resize(kMaxPacketBytes);
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxDescriptors * sizeof(int))];
  while (true) {
    iovec part = {packet.bytes.data(), packet.bytes.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    // Children that are started meanwhile do not inherit the descriptors.
    const ssize_t received = recvmsg(fd(), &message, MSG_CMSG_CLOEXEC);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      const absl::Duration left = absl::FromChrono(deadline - std::chrono::steady_clock::now());
      if (left <= absl::ZeroDuration())
        return absl::DeadlineExceededError("the peer of a local socket sent nothing");
      pollfd readable = {fd(), POLLIN, 0};
      poll(&readable, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
      continue;
    }
    if (received == 0 || (received < 0 && PeerIsGone(errno))) return Gone();
    if (received < 0) return absl::ErrnoToStatus(errno, "local socket: receive");
    // Taken before any check, so that they are closed whatever follows.
    for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
         header = CMSG_NXTHDR(&message, header)) {
      if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
      const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
      for (size_t i = 0; i < count; ++i) {
        int descriptor = -1;
        std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
        packet.descriptors.emplace_back(descriptor);
      }
    }
    if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("the peer of a local socket sent more than ",
                                                     kMaxPacketBytes, " bytes or ", kMaxDescriptors,
                                                     " descriptors in one packet"));
    }
    packet.bytes.resize(static_cast<size_t>(received));
    return packet;
  }
}

absl::StatusOr<UnixListener> UnixListener::Listen(const std::string& name) {
  sockaddr_un address;
  socklen_t length = 0;
  UnixListener listener;
  SLUICE_ASSIGN_OR_RETURN(listener.fd_, Open(name, &address, &length));
  if (bind(listener.fd(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
    if (errno == EADDRINUSE)
      return absl::AlreadyExistsError(absl::StrCat("the local socket ", name, " is taken"));
    return SocketFailed("bind", name);
  }
  if (listen(listener.fd(), kBacklog) != 0) return SocketFailed("listen", name);
  return listener;
}

absl::StatusOr<UnixConnection> UnixListener::Accept() {
  int fd = -1;
  do {
    fd = accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNABORTED))
    return absl::UnavailableError("no connection waits at the local socket");
  if (fd < 0) return absl::ErrnoToStatus(errno, "local socket: accept");
  UnixConnection connection((FileDescriptor(fd)));
  SLUICE_RETURN_IF_ERROR(CheckUser(fd));
  return connection;
}

}  // namespace sluice
