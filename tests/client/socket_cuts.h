// Cuts sockets of this process behind the backs of their owners, at any byte of a message: both
// ends see what they see when the process at the other end is killed.
//
// Thread safety: safe from any thread. A descriptor may be closed and used for something else
// meanwhile; then another socket is cut, which is just as well.
#pragma once

#include <dirent.h>
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

namespace sluice {

// True: `fd` is a connection of the data plane: local and with packets, or TCP.
inline bool IsConnection(int fd) {
  const auto option = [fd](int name) {
    int value = -1;
    socklen_t size = sizeof(value);
    return getsockopt(fd, SOL_SOCKET, name, &value, &size) == 0 ? value : -1;
  };
  const int domain = option(SO_DOMAIN), type = option(SO_TYPE);
  const bool local = domain == AF_UNIX && type == SOCK_SEQPACKET;
  const bool tcp = (domain == AF_INET || domain == AF_INET6) && type == SOCK_STREAM;
  return (local || tcp) && option(SO_ACCEPTCONN) == 0;
}

// Cuts one connection, which `random` picks. False: there is none.
inline bool CutOneSocket(uint64_t random) {
  std::vector<int> connections;
  DIR* const dir = opendir("/proc/self/fd");
  if (dir == nullptr) return false;
  while (const dirent* entry = readdir(dir)) {
    const int fd = std::atoi(entry->d_name);
    if (fd > 2 && fd != dirfd(dir) && IsConnection(fd)) connections.push_back(fd);
  }
  closedir(dir);
  return !connections.empty() && shutdown(connections[random % connections.size()], SHUT_RDWR) == 0;
}

}  // namespace sluice
