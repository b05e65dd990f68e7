// A TCP relay for tests that passes bytes between a client and a server until it falls silent.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <string>
#include <thread>

#include "gtest/gtest.h"

namespace sluice {

inline sockaddr_in LoopbackAddress(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

inline int ConnectTo(int port) {
  const sockaddr_in address = LoopbackAddress(port);
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  return fd;
}

// Sends `bytes` to a port of this host on a new connection, and closes it.
inline void SendBytes(int port, const std::string& bytes) {
  const int fd = ConnectTo(port);
  EXPECT_GT(send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
  close(fd);
}

class TcpRelay {
 public:
  // Relays one connection to `target_port`. With 0 the listener neither reads nor answers.
  explicit TcpRelay(int target_port) : target_port_(target_port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = LoopbackAddress(0);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    if (target_port_ != 0) thread_ = std::thread([this] { Relay(); });
  }
  ~TcpRelay() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    if (thread_.joinable()) thread_.join();
    close(listener_);
  }
  int port() const { return port_; }
  // From now on no byte passes, but the connections stay open.
  void FallSilent() { silent_ = true; }

 private:
  void Relay() {
    const int client = accept(listener_, nullptr, nullptr);
    if (client < 0) return;
    const int server = ConnectTo(target_port_);
    pollfd fds[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    char buffer[65536];
    bool open = true;
    while (open && !stopping_) {
      poll(fds, silent_ ? 0 : 2, /*timeout_ms=*/10);
      for (int i = 0; i < 2 && !silent_; ++i) {
        if (fds[i].revents == 0) continue;
        const ssize_t n = recv(fds[i].fd, buffer, sizeof buffer, 0);
        open = n > 0 && send(fds[1 - i].fd, buffer, n, MSG_NOSIGNAL) == n;
        if (!open) break;
      }
    }
    close(client);
    close(server);
  }

  const int target_port_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> silent_{false}, stopping_{false};
  std::thread thread_;
};

}  // namespace sluice
