#include "bench/tcp_loopback.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "bench/suite.h"
#include "common/base/cpu_pin.h"

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

constexpr size_t kPiece = 128 << 10;

}  // namespace

// One end's arrays. Small messages and answers carry no values, so there is no pass over them.
struct TcpLoopback::End {
  End(const Shape& shape, size_t out_bytes, size_t in_bytes)
      : out(out_bytes / sizeof(float)),
        in(in_bytes / sizeof(float)),
        piece(kPiece / sizeof(float)),
        pass(shape.pass) {}

  bool Send(int fd) {
    if (!pass) return SendAll(fd, reinterpret_cast<const char*>(out.data()), 4 * out.size());
    for (size_t i = 0; i < out.size(); i += piece.size()) {
      const size_t n = std::min(piece.size(), out.size() - i);
      std::memcpy(piece.data(), &out[i], 4 * n);
      if (!SendAll(fd, reinterpret_cast<const char*>(piece.data()), 4 * n)) return false;
    }
    return true;
  }

  bool Receive(int fd) {
    if (!pass) return ReceiveAll(fd, reinterpret_cast<char*>(in.data()), 4 * in.size());
    for (size_t i = 0; i < in.size(); i += piece.size()) {
      const size_t n = std::min(piece.size(), in.size() - i);
      if (!ReceiveAll(fd, reinterpret_cast<char*>(piece.data()), 4 * n)) return false;
      for (size_t j = 0; j < n; ++j) in[i + j] += 0.5f * piece[j];
    }
    return true;
  }

  std::vector<float> out, in, piece;
  const bool pass;
};

TcpLoopback::TcpLoopback(Shape shape)
    : shape_(shape),
      self_(std::make_unique<End>(shape, shape.message_bytes, shape.answer_bytes)),
      other_(std::make_unique<End>(shape, shape.answer_bytes, shape.message_bytes)) {}

absl::StatusOr<std::unique_ptr<TcpLoopback>> TcpLoopback::Create(Shape shape) {
  std::unique_ptr<TcpLoopback> loopback(new TcpLoopback(shape));
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
  if (server < 0)
    return absl::UnavailableError(
        absl::StrCat("cannot open a TCP connection over loopback: ", why));
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
  const CpuPin pin(1, 1);
  while (other_->Receive(fd) && other_->Send(fd)) {
  }
  close(fd);
}

double TcpLoopback::Run(int messages, int in_flight) {
  const CpuPin pin(0, 1);
  const double start = Now();
  bool ok = true;
  for (int sent = 0, answered = 0; ok && answered < messages;) {
    if (sent < messages && sent - answered < in_flight) {
      ok = self_->Send(client_);
      ++sent;
    } else {
      ok = self_->Receive(client_);
      ++answered;
    }
  }
  return Now() - start;
}

}  // namespace sluice::bench
