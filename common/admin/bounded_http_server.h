// An HTTP server that bounds the memory and the time that one client can take.
//
// cpp-httplib alone bounds one line of a request, but neither the length of a header line nor the
// number of headers, its timeouts begin anew with every byte, and each connection holds a thread.
// Here the library only parses requests that are complete, and makes their answers. ExchangeLoop
// does all reading and sending, and has the bounds. Somebody else accepts the connections
// (common/security/connection_listener.h); the library's own functions for that are not to be used.
//
// A connection carries one request, and only GET and HEAD are served. Bodies are not read, and
// ranges are ignored: the library would copy the answer once for each of thousands of ranges.
//
// With TLS, all of this holds too. httplib::SSLServer would not do: its handshake is not bounded.
//
// Thread safety: Add is safe from any thread; the rest as httplib::Server. Handlers run on
// `threads` threads.
#pragma once

#include <httplib.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/admin/exchange_loop.h"
#include "common/security/tls_server.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

class BoundedHttpServer : public httplib::Server {
 public:
  using Limits = ExchangeLoop::Limits;

  struct Access {
    TlsServer* tls = nullptr;  // null: plain HTTP. Outlives the server.
    // Whether the request may be made; else it is answered with 403 and the message. With TLS,
    // request.ssl is the session. Empty: every request may.
    std::function<absl::Status(const httplib::Request& request)> admit;
    // Answers a request that may be made, or returns false: then the handlers are asked. For paths
    // that hold a name, because the library matches paths with regular expressions, whose depth
    // grows with the path. Runs on several threads. May be empty.
    std::function<bool(const httplib::Request& request, httplib::Response* response)> answer;
    // Told of each connection and request that is refused or given up, but not of those that
    // `admit` refuses, nor of clients that send nothing and close: those may be probes of the port.
    // Runs on several threads, and must not wait. May be empty.
    std::function<void(const HttpRefusal& refusal)> on_refused;
  };

  explicit BoundedHttpServer(Limits limits) : BoundedHttpServer(limits, Access()) {}
  BoundedHttpServer(Limits limits, Access access);
  // Closes all connections, after the requests that are complete have been answered.
  ~BoundedHttpServer() override;

  // Serves a connection that has been accepted. Does not wait. All handlers are set before.
  void Add(FileDescriptor connection);

 private:
  std::string Answer(const HttpExchange& exchange);
  // Reports an answer that refuses the request.
  void ReportRefusal(const httplib::Request& request, const httplib::Response& response) const;

  const Access access_;
  ExchangeLoop loop_;  // its threads use all of the above
};

}  // namespace sluice
