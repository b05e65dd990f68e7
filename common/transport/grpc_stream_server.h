// The server's half of the data plane over gRPC: streams of kExchangeMethod to handlers, and unary
// calls.
//
// A stream is pinned to one of `threads` threads: read -> OnMessage on that thread -> next read. A
// handler that blocks stops the other streams of its thread. Unary handlers run on threads of their
// own. Thread safety: Send and Close of a handler's stream from any thread; Shutdown not from a
// handler. Memory: see grpc_convert.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "common/transport/transport.h"

namespace sluice {

class GrpcStreamServer {
 public:
  // Serialized request to serialized reply.
  using UnaryHandler = std::function<absl::StatusOr<std::string>(const std::string& request)>;

  struct Options {
    std::string bind_address = "127.0.0.1:0";  // host:port; port 0: a free one
    int threads = 2;
    int unary_threads = 1;
    // A longer message ends its stream with RESOURCE_EXHAUSTED.
    size_t max_message_bytes = size_t{256} << 20;
    // More than this queued on one stream ends it with RESOURCE_EXHAUSTED: the client does not
    // read.
    size_t max_queued_bytes = size_t{1} << 30;
    // More streams than these are refused with RESOURCE_EXHAUSTED.
    int max_streams = 1024;
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    // Calls that have not ended by then are cut at Shutdown.
    absl::Duration shutdown_timeout = absl::Seconds(2);
  };

  GrpcStreamServer(Options options, StreamHandlerFactory factory);
  ~GrpcStreamServer();  // Shutdown()

  // Before Start. `method` is the full name, "/sluice.Pserver/SaveShards".
  void RegisterUnary(const std::string& method, UnaryHandler handler);

  // UNAVAILABLE says why the address cannot be bound (in use, not of this host, ...).
  absl::Status Start();
  // The port that was bound; 0 before Start.
  int port() const;

  // Ends every stream with UNAVAILABLE, lets unary handlers finish, and returns when every handler
  // has had its OnClosed and is destroyed. Streams kept by others stay valid and do nothing. Safe
  // to call twice.
  void Shutdown();

  // Streams open now.
  int open_streams() const;
  // Bytes accepted by Send and not yet sent or lost, over all streams.
  size_t queued_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
