// A listening socket on loopback, for tests that accept the connections themselves.
//
// Thread safety: one thread.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gtest/gtest.h"

namespace sluice {

class LocalListener {
 public:
  LocalListener() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(fd_, 64), 0);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
  }
  ~LocalListener() { close(fd_); }
  int port() const { return port_; }
  int Accept() const { return accept(fd_, nullptr, nullptr); }

 private:
  const int fd_;
  int port_ = 0;
};

}  // namespace sluice
