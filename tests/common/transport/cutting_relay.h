// A TCP relay for tests that cuts its first connections in the middle, and relays all later ones.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/common/transport/tcp_relay.h"

namespace sluice {

class CuttingRelay {
 public:
  // Cuts the first `cuts` connections, each after `bytes` bytes of the server.
  CuttingRelay(int target_port, size_t bytes, size_t cuts)
      : target_port_(target_port), bytes_(bytes), cuts_(cuts) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = LoopbackAddress(0);
    socklen_t length = sizeof address;
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_, 8), 0);
    EXPECT_EQ(getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Accept(); });
  }
  ~CuttingRelay() {
    stopping_ = true;
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  int port() const { return port_; }
  size_t has_cut() const { return has_cut_; }

 private:
  void Accept() {
    std::vector<std::thread> relays;
    for (int client; (client = accept(listener_, nullptr, nullptr)) >= 0;) {
      const bool cut = relays.size() < cuts_;
      relays.emplace_back([this, client, cut] { Relay(client, cut); });
    }
    for (std::thread& relay : relays) relay.join();
  }

  void Relay(int client, bool cut) {
    // A client speaks first, once it has checked whose server this is.
    pollfd spoken = {client, POLLIN, 0};
    while (poll(&spoken, 1, /*timeout_ms=*/10) == 0 && !stopping_) {
    }
    const int server = ConnectTo(target_port_);
    pollfd fds[2] = {{client, POLLIN, 0}, {server, POLLIN, 0}};
    char buffer[65536];
    size_t left = bytes_;
    bool open = true;
    while (open && !stopping_) {
      poll(fds, 2, /*timeout_ms=*/10);
      for (int i = 0; i < 2 && open; ++i) {
        if (fds[i].revents == 0) continue;
        ssize_t n = recv(fds[i].fd, buffer, sizeof buffer, 0);
        if (cut && i == 1 && n > 0) {
          n = static_cast<ssize_t>(std::min(static_cast<size_t>(n), left));
          left -= static_cast<size_t>(n);
        }
        open = n > 0 && send(fds[1 - i].fd, buffer, static_cast<size_t>(n), MSG_NOSIGNAL) == n;
        if (cut && left == 0) {
          open = false;
          ++has_cut_;
        }
      }
    }
    close(client);
    close(server);
  }

  const int target_port_;
  const size_t bytes_, cuts_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<size_t> has_cut_{0};
  std::thread thread_;
};

}  // namespace sluice
