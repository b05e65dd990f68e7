// An HTTP server that bounds the memory and the time that one client can take.
//
// cpp-httplib alone bounds one line of a request, but neither the length of a header line nor the
// number of headers, and its timeouts begin anew with every byte.
//
// - A request of more than `request_bytes` is answered with 431 and its connection is closed.
// - A connection that has not sent its request within `request_time`, of which a TLS handshake is a
//   part, or has not taken the answer within `answer_time`, is closed. While others wait, a
//   connection has only `busy_request_time` for its request.
// - At most `waiting` connections wait for a thread. Further ones are closed at once.
// - A connection carries one request, and only GET and HEAD are served. Bodies are not read, and
//   ranges are ignored: the library would copy the answer once for each of thousands of ranges.
//
// With TLS, all of this holds too. httplib::SSLServer would not do: its handshake is not bounded.
//
// Thread safety: as httplib::Server. Handlers run on `threads` threads.
#pragma once

#include <httplib.h>

#include <atomic>
#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "common/security/tls_server.h"

namespace sluice {

class BoundedHttpServer : public httplib::Server {
 public:
  struct Limits {
    size_t threads = 2;
    size_t waiting = 64;
    size_t request_bytes = size_t{64} << 10;
    absl::Duration request_time = absl::Seconds(5);
    absl::Duration answer_time = absl::Seconds(10);
    absl::Duration busy_request_time = absl::Milliseconds(500);
  };

  struct Access {
    TlsServer* tls = nullptr;  // null: plain HTTP. Outlives the server.
    // Whether the request may be made; else it is answered with 403 and the message. With TLS,
    // request.ssl is the session. Empty: every request may.
    std::function<absl::Status(const httplib::Request& request)> admit;
    // Told of handshakes that have failed, but not of clients that close at once. May be empty.
    std::function<void(const std::string& ip, int port, const std::string& why)>
        on_failed_handshake;
  };

  explicit BoundedHttpServer(Limits limits) : BoundedHttpServer(limits, Access()) {}
  BoundedHttpServer(Limits limits, Access access);

 private:
  class Connection;
  class Threads;

  bool process_and_close_socket(socket_t sock) override;
  // Serves the one request of a connection. False when it has none that can be answered.
  bool Serve(Connection* connection);

  const Limits limits_;
  const Access access_;
  // Connections that are open: those being served and those that wait for a thread.
  std::atomic<size_t> open_{0};
};

}  // namespace sluice
