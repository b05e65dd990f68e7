// One connection to an HTTP or HTTPS server of this host, for bytes that no HTTP library would
// send.
#pragma once

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "common/security/tls_server.h"
#include "gtest/gtest.h"

namespace sluice {

class HttpConnection {
 public:
  // With `tls`, the handshake begins with the first Send or Receive.
  explicit HttpConnection(int port, SSL_CTX* tls = nullptr)
      : fd_(socket(AF_INET, SOCK_STREAM, 0)), tls_(tls != nullptr ? SSL_new(tls) : nullptr) {
    signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to a closed connection
    const timeval timeout = {60, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout));
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    if (tls_ != nullptr) SSL_set_fd(tls_.get(), fd_);
  }
  ~HttpConnection() { close(fd_); }
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  // This end's port.
  int port() const {
    sockaddr_in own = {};
    socklen_t length = sizeof(own);
    EXPECT_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&own), &length), 0);
    return ntohs(own.sin_port);
  }
  // False when the server takes no more bytes.
  bool Send(const std::string& bytes) {
    if (tls_ == nullptr) return SendRaw(bytes);
    return SSL_connect(tls_.get()) == 1 &&
           SSL_write(tls_.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }
  // The same without TLS, whatever the server speaks.
  bool SendRaw(const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  // The server sees the end of the bytes at once.
  void EndSending() {
    if (tls_ != nullptr) SSL_shutdown(tls_.get());
    shutdown(fd_, SHUT_WR);
  }
  // Everything that comes until the server closes, or sends nothing for 60 s.
  std::string Receive() {
    if (tls_ == nullptr) return ReceiveRaw();
    std::string answer;
    if (SSL_connect(tls_.get()) != 1) return answer;
    char buffer[4096];
    for (int n; (n = SSL_read(tls_.get(), buffer, sizeof(buffer))) > 0;) answer.append(buffer, n);
    return answer;
  }
  std::string ReceiveRaw() {
    std::string answer;
    char buffer[4096];
    for (ssize_t n; (n = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) answer.append(buffer, n);
    return answer;
  }

 private:
  const int fd_;
  const TlsSession tls_;
};

}  // namespace sluice
