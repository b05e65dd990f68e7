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

#include "absl/strings/str_cat.h"
#include "common/admin/socket_channel.h"
#include "common/base/clock.h"
#include "common/security/accept_reserve.h"

namespace sluice {
namespace {

// A server that stops is noticed within this time.
constexpr absl::Duration kLook = absl::Milliseconds(100);
// After an answer to what was not a whole request, so many more bytes are read and dropped.
constexpr size_t kMaxDiscarded = size_t{1} << 20;
constexpr char kTooLarge[] =
    "HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Length: "
    "0\r\n\r\n";
constexpr char kNeedsTls[] =
    "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\n\r\n"
    "this port speaks HTTPS: use https://\n";

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
  Connection(socket_t sock, TlsSession tls, const Limits& limits, const std::atomic<size_t>* open,
             const std::atomic<socket_t>* listener)
      : channel_(sock, std::move(tls)),
        limits_(limits),
        open_(open),
        listener_(listener),
        begun_(Clock::Real()->Now()),
        read_by_(begun_ + limits.request_time) {}

  bool too_large() const { return too_large_; }
  bool stopping() const { return *listener_ == INVALID_SOCKET; }
  const SSL* tls() const { return channel_.tls(); }

  // The TLS handshake, and nothing without TLS. When it fails, `why` says so, except for a client
  // that closes at once: that may be a probe of the port.
  bool Handshake(std::string* why) {
    for (;;) {
      const Progress progress = channel_.Handshake();
      if (progress == Progress::kDone) return true;
      if (progress == Progress::kFailed) break;
      // Asked even when the client always sends at once.
      if (Clock::Real()->Now() >= read_by_ || !AwaitFor(progress, read_by_)) {
        if (!stopping()) *why = "the handshake took too long";
        return false;
      }
    }
    if (channel_.peer_has_sent_anything()) *why = channel_.failure();
    return false;
  }

  // After a handshake that has failed: OpenSSL has told the client why, if that speaks TLS.
  void EndHandshake() {
    if (channel_.peer_speaks_http()) send(socket(), kNeedsTls, sizeof(kNeedsTls) - 1, MSG_NOSIGNAL);
    EndAndDrop();
  }

  // Answers that the request is too large.
  void AnswerTooLarge() {
    if (Write(kTooLarge, sizeof(kTooLarge) - 1) > 0) EndAndDrop();
  }

  void EndWriting() { channel_.EndWriting(); }

  bool is_readable() const override {
    return next_ < held_ || channel_.has_data() || Await(POLLIN, read_by_);
  }
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
    IpAndPort(&getpeername, socket(), &ip, &port);
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    IpAndPort(&getsockname, socket(), &ip, &port);
  }
  socket_t socket() const override { return channel_.fd(); }

 private:
  using Progress = SocketChannel::Progress;

  ssize_t Write(const char* from, size_t size) {
    if (write_by_ == absl::InfinitePast()) write_by_ = Clock::Real()->Now() + limits_.answer_time;
    for (;;) {
      size_t n = 0;
      const Progress progress = channel_.Write(from, size, &n);
      if (progress == Progress::kDone) return static_cast<ssize_t>(n);
      if (!AwaitFor(progress, write_by_)) return -1;
    }
  }

  // Reads what the client has sent. False when a limit is reached or the connection is broken.
  bool Fill() {
    if (total_ >= limits_.request_bytes) {
      too_large_ = true;
      return false;
    }
    for (;;) {
      next_ = held_ = 0;
      const size_t room = std::min(sizeof(buffer_), limits_.request_bytes - total_);
      const Progress progress = channel_.Read(buffer_, room, &held_);
      total_ += held_;
      if (progress == Progress::kDone || progress == Progress::kEnded) return true;
      if (!AwaitFor(progress, read_by_)) return false;
    }
  }

  // The client may still be sending: closing at once would reset the connection, and the client
  // could lose the answer.
  void EndAndDrop() {
    channel_.EndWriting();
    for (size_t dropped = 0; dropped < kMaxDiscarded;) {
      size_t n = 0;
      const Progress progress = channel_.Drop(&n);
      dropped += n;
      if (progress != Progress::kDone && !AwaitFor(progress, read_by_)) return;
    }
  }

  // Waits for what an operation awaits. False when that does not come, or it has failed.
  bool AwaitFor(Progress progress, absl::Time by) const {
    if (progress == Progress::kAwaitsReading) return Await(POLLIN, by);
    return progress == Progress::kAwaitsWriting && Await(POLLOUT, by);
  }

  // Waits for `events` until `by`. A time in the past asks without waiting.
  bool Await(short events, absl::Time by) const {
    pollfd at = {socket(), events, 0};
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

  SocketChannel channel_;
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

BoundedHttpServer::BoundedHttpServer(Limits limits, Access access)
    : limits_(limits), access_(std::move(access)) {
  KeepAcceptReserve();
  new_task_queue = [this] { return new Threads(this); };
  // The headers decide; a body, which could be compressed, is never read.
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (request.method != "GET" && request.method != "HEAD") {
      response.status = 405;
      response.set_header("Allow", "GET, HEAD");
      return HandlerResponse::Handled;
    }
    const absl::Status admitted = access_.admit ? access_.admit(request) : absl::OkStatus();
    if (admitted.ok()) return HandlerResponse::Unhandled;
    response.status = 403;
    response.set_content(absl::StrCat(admitted.message(), "\n"), "text/plain; charset=utf-8");
    return HandlerResponse::Handled;
  });
}

bool BoundedHttpServer::process_and_close_socket(socket_t sock) {
  bool served = false;
  if (!t_refuses) {
    TlsSession tls = access_.tls != nullptr ? access_.tls->NewSession() : nullptr;
    // Without memory for a session, the connection must not be served without TLS.
    const bool ready = tls != nullptr || access_.tls == nullptr;
    Connection connection(sock, std::move(tls), limits_, &open_, &svr_sock_);
    if (ready && !connection.stopping()) served = Serve(&connection);
  }
  shutdown(sock, SHUT_RDWR);
  close(sock);
  --open_;
  return served;
}

bool BoundedHttpServer::Serve(Connection* connection) {
  std::string ip, why;
  int port = 0;
  connection->get_remote_ip_and_port(ip, port);  // while there is a client
  if (!connection->Handshake(&why)) {
    if (!why.empty() && access_.on_failed_handshake) access_.on_failed_handshake(ip, port, why);
    connection->EndHandshake();
    return false;
  }
  bool closed = false;
  const bool served = process_request(*connection, /*close_connection=*/true, closed,
                                      [connection](httplib::Request& request) {
                                        request.ranges.clear();
                                        request.ssl = connection->tls();
                                      });
  if (connection->too_large()) {
    connection->AnswerTooLarge();
  } else {
    connection->EndWriting();
  }
  return served;
}

}  // namespace sluice
