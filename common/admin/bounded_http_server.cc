#include "common/admin/bounded_http_server.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/security/audit_log.h"

namespace sluice {
namespace {

// The exchange that this thread answers. The logger needs it, because the library does not tell it
// who sent a malformed request.
thread_local const HttpExchange* t_answered = nullptr;

// Gives the library the bytes of a complete request, and takes its answer.
class CompleteRequest : public httplib::Stream {
 public:
  explicit CompleteRequest(const HttpExchange& exchange) : exchange_(exchange) {}

  std::string TakeAnswer() { return std::move(answer_); }

  bool is_readable() const override { return next_ < exchange_.request().size(); }
  bool is_writable() const override { return true; }
  ssize_t read(char* to, size_t size) override {
    const std::string& request = exchange_.request();
    const size_t n = std::min(size, request.size() - next_);
    std::memcpy(to, request.data() + next_, n);
    next_ += n;
    return static_cast<ssize_t>(n);
  }
  ssize_t write(const char* from, size_t size) override {
    answer_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  void get_remote_ip_and_port(std::string& ip, int& port) const override {
    ip = exchange_.ip();
    port = exchange_.port();
  }
  void get_local_ip_and_port(std::string& ip, int& port) const override {
    ip.clear();  // no handler asks
    port = 0;
  }
  socket_t socket() const override { return exchange_.fd(); }

 private:
  const HttpExchange& exchange_;
  size_t next_ = 0;
  std::string answer_;
};

}  // namespace

BoundedHttpServer::BoundedHttpServer(Limits limits, Access access)
    : access_(std::move(access)),
      loop_(limits, {access_.tls, [this](const HttpExchange& exchange) { return Answer(exchange); },
                     access_.on_refused}) {
  // The headers decide; a body, which could be compressed, is never read.
  set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
    if (request.method != "GET" && request.method != "HEAD") {
      response.status = 405;
      response.set_header("Allow", "GET, HEAD");
      return HandlerResponse::Handled;
    }
    const absl::Status admitted = access_.admit ? access_.admit(request) : absl::OkStatus();
    if (admitted.ok()) {
      return access_.answer && access_.answer(request, &response) ? HandlerResponse::Handled
                                                                  : HandlerResponse::Unhandled;
    }
    response.status = 403;
    response.set_content(absl::StrCat(admitted.message(), "\n"), "text/plain; charset=utf-8");
    return HandlerResponse::Handled;
  });
  set_logger([this](const httplib::Request& request, const httplib::Response& response) {
    ReportRefusal(request, response);
  });
}

BoundedHttpServer::~BoundedHttpServer() = default;

void BoundedHttpServer::Add(FileDescriptor connection) { loop_.Add(connection.Release()); }

std::string BoundedHttpServer::Answer(const HttpExchange& exchange) {
  CompleteRequest stream(exchange);
  bool closed = false;
  // The library's logger gets the request alone; this tells it whose it was.
  t_answered = &exchange;
  process_request(stream, /*close_connection=*/true, closed,
                  [&exchange](httplib::Request& request) {
                    request.ranges.clear();
                    // The library would compress with Brotli at its slowest level: twenty times
                    // the time of gzip for answers that are hardly smaller.
                    const bool gzip =
                        absl::StrContains(request.get_header_value("Accept-Encoding"), "gzip");
                    request.headers.erase("Accept-Encoding");
                    if (gzip) request.set_header("Accept-Encoding", "gzip");
                    request.ssl = exchange.tls();
                  });
  return stream.TakeAnswer();
}

void BoundedHttpServer::ReportRefusal(const httplib::Request& request,
                                      const httplib::Response& response) const {
  // Others that fail are not refused (404, 500), or `admit` has refused them (403).
  const bool refused = response.status == 400 || response.status == 405 || response.status == 414;
  if (!refused || !access_.on_refused) return;
  access_.on_refused({t_answered->caller(), request.path.empty() ? kRequestMethod : request.path,
                      RefusalReason::kInvalid,
                      response.status == 405
                          ? absl::StrCat("only GET and HEAD are served, not ", request.method)
                          : absl::StrCat("the request is malformed (", response.status, ")")});
}

}  // namespace sluice
