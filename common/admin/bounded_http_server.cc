#include "common/admin/bounded_http_server.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/base/clock.h"

namespace sluice {
namespace {

// A server that stops is noticed within this time.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// After the answer 431, so many more bytes of the request are read and dropped.
constexpr size_t kMaxDiscarded = size_t{1} << 20;
constexpr char kTooLarge[] =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: "
    "0\r\n\r\n";

// Set on a thread while it runs the task of a connection that is beyond the limit.
thread_local bool t_refuses = false;

void IpAndPort(int (*name_of)(int, sockaddr*, socklen_t*), socket_t sock, std::string* ip,
               int* port) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (name_of(sock, reinterpret_cast<sockaddr*>(&address), &size) != 0 ||
      getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof(host), service,
                  sizeof(service), NI_NUMERICHOST | NI_NUMERICSERV) != 0) {
    return;
  }
  *ip = host;
  *port = std::atoi(service);
}

}  // namespace

// The stream of one request and its answer. Reads and writes fail once a limit is reached; the
// library then gives the request up.
class BoundedHttpServer::Connection : public httplib::Stream {
 public:
  Connection(socket_t sock, const Limits& limits, const std::atomic<size_t>* open,
             const std::atomic<socket_t>* listener)
      : sock_(sock),
        limits_(limits),
        open_(open),
        listener_(listener),
        begun_(Clock::Real()->Now()),
        read_by_(begun_ + limits.request_time) {}

  bool too_large() const { return too_large_; }
  bool stopping() const { return *listener_ == INVALID_SOCKET; }

  // Answers that the request is too large. The client may still be sending: closing at once would
  // reset the connection, and the client could lose the answer.
  void AnswerTooLarge() {
    if (Write(kTooLarge, sizeof(kTooLarge) - 1) < 0) return;
    shutdown(sock_, SHUT_WR);
    for (size_t discarded = 0; discarded < kMaxDiscarded && Await(POLLIN, read_by_);) {
      const ssize_t n = recv(sock_, buffer_, sizeof(buffer_), MSG_DONTWAIT);
      if (n <= 0) return;
      discarded += static_cast<size_t>(n);
    }
  }

  bool is_readable() const override { return next_ < held_ || Await(POLLIN, read_by_); }
  bool is_writable() const override { return Await(POLLOUT, absl::InfinitePast()); }

  ssize_t read(char* to, size_t size) override {
    if (next_ == held_ && !Fill()) return -1;
    if (next_ == held_) return 0;  // the client has ended its side
    const size_t n = std::min(size, held_ - next_);
    std::memcpy(to, buffer_ + next_, n);
    next_ += n;
    return static_cast<ssize_t>(n);
  }

  ssize_t write(const char* from, size_t size) override {
    return too_large_ ? -1 : Write(from, size);  // AnswerTooLarge comes instead
  }

  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    IpAndPort(&getpeername, sock_, &ip, &port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    IpAndPort(&getsockname, sock_, &ip, &port);
  }
  socket_t socket() const override { return sock_; }

 private:
  ssize_t Write(const char* from, size_t size) {
    if (write_by_ == absl::InfinitePast()) write_by_ = Clock::Real()->Now() + limits_.answer_time;
    for (;;) {
      const ssize_t n = send(sock_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (n >= 0) return n;
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return -1;
      if (!Await(POLLOUT, write_by_)) return -1;
    }
  }

  // Reads what the client has sent. False when a limit is reached or the connection is broken.
  bool Fill() {
    if (total_ >= limits_.request_bytes) {
      too_large_ = true;
      return false;
    }
    for (;;) {
      if (!Await(POLLIN, read_by_)) return false;
      const ssize_t n = recv(
          sock_, buffer_, std::min(sizeof(buffer_), limits_.request_bytes - total_), MSG_DONTWAIT);
      if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK)) continue;
      if (n < 0) return false;
      next_ = 0;
      held_ = static_cast<size_t>(n);
      total_ += held_;
      return true;
    }
  }

  // Waits for `events` until `by`. A time in the past asks without waiting.
  bool Await(short events, absl::Time by) const {
    pollfd at = {sock_, events, 0};
    for (;;) {
      if (stopping()) return false;
      const absl::Time now = Clock::Real()->Now();
      // Others wait, and the request is not complete.
      const bool hurry = *open_ > limits_.threads && write_by_ == absl::InfinitePast();
      const absl::Time end = hurry ? std::min(by, begun_ + limits_.busy_request_time) : by;
      const absl::Duration wait = std::clamp(end - now, absl::ZeroDuration(), kLook);
      const int ready = poll(&at, 1, static_cast<int>(absl::ToInt64Milliseconds(wait)));
      if (ready > 0) return true;
      if ((ready < 0 && errno != EINTR) || now >= end) return false;
    }
  }

  const socket_t sock_;
  const Limits& limits_;
  const std::atomic<size_t>* const open_;
  const std::atomic<socket_t>* const listener_;  // INVALID_SOCKET once the server stops
  const absl::Time begun_, read_by_;
  absl::Time write_by_ = absl::InfinitePast();  // from the first byte of the answer on
  bool too_large_ = false;
  size_t total_ = 0;            // bytes received
  size_t next_ = 0, held_ = 0;  // what buffer_ holds begins at next_ and ends at held_
  char buffer_[4096];
};

// Runs the library's tasks, one for each connection. A task always runs, because it closes the
// connection: one beyond the limit runs at once, on the thread that accepts, and only closes.
class BoundedHttpServer::Threads : public httplib::ThreadPool {
 public:
  explicit Threads(BoundedHttpServer* server)
      : httplib::ThreadPool(server->limits_.threads), server_(server) {}

  void enqueue(std::function<void()> task) override {
    const size_t open = ++server_->open_;
    if (open > server_->limits_.threads + server_->limits_.waiting) {
      t_refuses = true;
      task();
      t_refuses = false;
    } else {
      httplib::ThreadPool::enqueue(std::move(task));
    }
  }

 private:
  BoundedHttpServer* const server_;
};

BoundedHttpServer::BoundedHttpServer(Limits limits) : limits_(limits) {
  new_task_queue = [this] { return new Threads(this); };
  // The headers decide; a body, which could be compressed, is never read.
  set_pre_routing_handler([](const httplib::Request& request, httplib::Response& response) {
    if (request.method == "GET" || request.method == "HEAD") return HandlerResponse::Unhandled;
    response.status = 405;
    response.set_header("Allow", "GET, HEAD");
    return HandlerResponse::Handled;
  });
}

bool BoundedHttpServer::process_and_close_socket(socket_t sock) {
  bool served = false;
  if (!t_refuses) {
    Connection connection(sock, limits_, &open_, &svr_sock_);
    bool closed = false;
    if (!connection.stopping()) {
      served = process_request(connection, /*close_connection=*/true, closed,
                               [](httplib::Request& request) { request.ranges.clear(); });
    }
    if (connection.too_large()) connection.AnswerTooLarge();
  }
  shutdown(sock, SHUT_RDWR);
  close(sock);
  --open_;
  return served;
}

}  // namespace sluice
