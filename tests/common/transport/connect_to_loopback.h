// Connects to a TCP port of this host, thousands of times a minute if need be.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <cerrno>
#include <cstdint>

namespace sluice {

// Connects `fd`, an IPv4 socket, to 127.0.0.1:port. A signal, such as that of libFuzzer's timer,
// does not interrupt it. The calls come from 250 addresses in turn: each connection keeps a port
// of its address for a minute after its end, and one address has 28,000 of them.
inline bool ConnectToLoopback(int fd, uint16_t port) {
  static std::atomic<uint32_t> calls{0};
  sockaddr_in from = {}, to = {};
  from.sin_family = to.sin_family = AF_INET;
  from.sin_addr.s_addr = htonl(INADDR_LOOPBACK + 256 + calls.fetch_add(1) % 250);
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons(port);
  const int late = 1;  // the kernel chooses the port when it knows both ends
  if (setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &late, sizeof(late)) != 0 ||
      bind(fd, reinterpret_cast<const sockaddr*>(&from), sizeof(from)) != 0) {
    return false;
  }
  if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0) return true;
  if (errno != EINTR) return false;
  pollfd connected = {fd, POLLOUT, 0};  // the kernel goes on connecting
  while (poll(&connected, 1, /*timeout=*/-1) < 0 && errno == EINTR) {
  }
  int error = 0;
  socklen_t size = sizeof(error);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
}

}  // namespace sluice
