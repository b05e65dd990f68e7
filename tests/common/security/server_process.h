// A process of any user that listens at a loopback address, for tests of whom a client speaks to.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <new>
#include <string>

#include "tests/common/security/other_user.h"

namespace sluice {

class ServerProcess {
 public:
  struct Options {
    uid_t user = 0;                     // REQUIRES: the test runs as root, or as this user
    std::string address = "127.0.0.1";  // of IPv4 or IPv6
    uint16_t port = 0;                  // 0: a free one
    bool accepts = true;
    bool defers = false;  // the handshake ends with the first byte of the client
  };

  explicit ServerProcess(const Options& options)
      : report_(new (mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE,
                          MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Report) {
    process_ = fork();
    if (process_ == 0) Run(options);
    while (report_->port == 0 && waitpid(process_, nullptr, WNOHANG) == 0) usleep(1000);
    EXPECT_NE(report_->port, 0) << "the server has not started";
  }
  ~ServerProcess() {
    Stop();
    munmap(report_, sizeof(Report));
  }
  ServerProcess(const ServerProcess&) = delete;

  uint16_t port() const { return static_cast<uint16_t>(report_->port); }
  int accepted() const { return report_->accepted; }
  // Waits until it has accepted a connection.
  void AwaitOne() const {
    for (int i = 0; i < 60'000 && accepted() == 0; ++i) usleep(1000);
  }
  int bytes() const { return report_->bytes; }
  // Waits until it has accepted so many connections, and seen the end of each or its first bytes.
  void AwaitAccepted(int count) const {
    for (int i = 0; i < 60'000 && report_->done < count; ++i) usleep(1000);
    EXPECT_GE(report_->done, count);
  }
  void Stop() {
    if (process_ <= 0) return;
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  struct Report {
    std::atomic<int> port{0}, accepted{0}, done{0}, bytes{0};
  };

  static socklen_t Fill(const Options& options, sockaddr_storage* address) {
    auto* const v4 = reinterpret_cast<sockaddr_in*>(address);
    auto* const v6 = reinterpret_cast<sockaddr_in6*>(address);
    if (inet_pton(AF_INET, options.address.c_str(), &v4->sin_addr) == 1) {
      v4->sin_family = AF_INET;
      v4->sin_port = htons(options.port);
      return sizeof(*v4);
    }
    inet_pton(AF_INET6, options.address.c_str(), &v6->sin6_addr);
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(options.port);
    return sizeof(*v6);
  }

  // The child. It makes only system calls, because the test may have threads.
  [[noreturn]] void Run(const Options& options) {
    if (geteuid() != options.user && setuid(options.user) != 0) _exit(1);
    sockaddr_storage address = {};
    socklen_t size = Fill(options, &address);
    const int listener = socket(address.ss_family, SOCK_STREAM, 0);
    const int on = 1, off = 0, seconds = 30;
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    if (options.defers)
      setsockopt(listener, IPPROTO_TCP, TCP_DEFER_ACCEPT, &seconds, sizeof(seconds));
    auto* const name = reinterpret_cast<sockaddr*>(&address);
    while (bind(listener, name, size) != 0) usleep(1000);
    if (listen(listener, 16) != 0 || getsockname(listener, name, &size) != 0) _exit(1);
    // sin6_port lies at the same place.
    report_->port = ntohs(reinterpret_cast<sockaddr_in*>(&address)->sin_port);
    for (;;) {
      const int connection = options.accepts ? accept(listener, nullptr, nullptr) : pause();
      if (connection < 0) continue;
      ++report_->accepted;
      char bytes[4096];
      const ssize_t got = recv(connection, bytes, sizeof(bytes), 0);
      if (got > 0) report_->bytes += static_cast<int>(got);
      ++report_->done;
      close(connection);
    }
  }

  Report* const report_;
  pid_t process_ = 0;
};

// A connection to a port of a loopback address, waited for; closed at the end.
class ClientEnd {
 public:
  explicit ClientEnd(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    error_ = connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno;
  }
  ~ClientEnd() { close(fd_); }
  ClientEnd(const ClientEnd&) = delete;
  int fd() const { return fd_; }
  int error() const { return error_; }

 private:
  const int fd_;
  int error_ = 0;
};

}  // namespace sluice
