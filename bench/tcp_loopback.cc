#include "bench/tcp_loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"

namespace sluice::bench {
namespace {

bool SendAll(int fd, const char* data, size_t n) {
  while (n > 0) {
    const ssize_t sent = send(fd, data, n, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    data += sent;
    n -= sent;
  }
  return true;
}

bool ReceiveAll(int fd, char* data, size_t n) {
  while (n > 0) {
    const ssize_t got = recv(fd, data, n, 0);
    if (got <= 0) return false;
    data += got;
    n -= got;
  }
  return true;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TcpLoopback>> TcpLoopback::Create(size_t message_bytes,
                                                                 size_t answer_bytes) {
  std::unique_ptr<TcpLoopback> loopback(new TcpLoopback(message_bytes, answer_bytes));
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  loopback->client_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  sockaddr* const any = reinterpret_cast<sockaddr*>(&address);
  socklen_t length = sizeof address;
  const bool connected = bind(listener, any, length) == 0 && listen(listener, 1) == 0 &&
                         getsockname(listener, any, &length) == 0 &&
                         connect(loopback->client_, any, length) == 0;
  const int server = connected ? accept(listener, nullptr, nullptr) : -1;
  const std::string why = std::strerror(errno);
  close(listener);
  if (server < 0) return absl::UnavailableError(absl::StrCat("no TCP over loopback: ", why));
  const int on = 1;
  setsockopt(loopback->client_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  loopback->peer_ = std::thread([raw = loopback.get(), server] { raw->Serve(server); });
  return loopback;
}

TcpLoopback::~TcpLoopback() {
  if (client_ >= 0) shutdown(client_, SHUT_RDWR);
  if (peer_.joinable()) peer_.join();
  if (client_ >= 0) close(client_);
}

void TcpLoopback::Serve(int fd) {
  std::vector<char> message(message_.size()), answer(answer_.size());
  while (ReceiveAll(fd, message.data(), message.size()) &&
         SendAll(fd, answer.data(), answer.size())) {
  }
  close(fd);
}

double TcpLoopback::Run(int messages, int in_flight) {
  const double start = Now();
  bool ok = true;
  for (int sent = 0, answered = 0; ok && answered < messages;) {
    if (sent < messages && sent - answered < in_flight) {
      ok = SendAll(client_, message_.data(), message_.size());
      ++sent;
    } else {
      ok = ReceiveAll(client_, answer_.data(), answer_.size());
      ++answered;
    }
  }
  return Now() - start;
}

}  // namespace sluice::bench
