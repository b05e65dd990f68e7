// The server's half of the data plane over gRPC: streams, and unary calls.
//
// Each stream is pinned to one of `threads` threads, which reads a message, runs OnMessage, and
// reads the next. A handler that blocks stops the other streams of its thread. Unary handlers run
// on separate threads, or there too.
//
// Nothing of a call is read before its headers have shown who calls: the user, the certificate and
// its role are checked first. A unary request that is longer than its method allows is dropped
// unparsed. Open unary calls are bounded as streams are (stream_admission.h).
//
// Thread safety: one thread. open_streams, open_connections, queued_bytes, and Send and Close of a
// handler's stream are safe from any thread. Shutdown must not run in a handler.
//
// Memory: see grpc_convert.h.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/security/audit_log.h"
#include "common/security/connection_places.h"
#include "common/security/grpc_credentials.h"
#include "common/security/peer_identity.h"
#include "common/transport/served_streams.h"
#include "common/transport/transport.h"

namespace grpc {
class ResourceQuota;
class ServerBuilder;
}  // namespace grpc

namespace sluice {

class GrpcServerCall;

// A unary call as its handler sees it: who calls, and where the reply goes.
//
// The handler may keep the call and reply later. A call that is dropped without a reply ends with
// INTERNAL.
//
// Thread safety: safe from any thread.
class UnaryCall {
 public:
  // `call` is one that ServeUnary serves. This object keeps it alive.
  UnaryCall(GrpcServerCall* call, PeerIdentity peer);
  ~UnaryCall();
  UnaryCall(const UnaryCall&) = delete;
  UnaryCall& operator=(const UnaryCall&) = delete;

  const std::string& method() const;                   // full name
  const PeerIdentity& peer() const { return peer_; }   // with its address
  std::string Metadata(const std::string& key) const;  // "" without it
  // True when nobody waits for the reply any more.
  bool cancelled() const;
  // Called once, on any thread, when the caller has gone before the reply: its connection has
  // broken, it has given the call up, or its deadline has passed.
  void OnCancel(std::function<void()> told);
  // The first reply counts.
  void Reply(const absl::StatusOr<std::string>& reply);

 private:
  GrpcServerCall* const call_;
  const PeerIdentity peer_;
  Mutex mutex_;
  bool replied_ ABSL_GUARDED_BY(mutex_) = false;
};

class GrpcStreamServer {
 public:
  // Turns a serialized request of `peer` into a serialized reply.
  using UnaryHandler = std::function<absl::StatusOr<std::string>(const PeerIdentity& peer,
                                                                 const std::string& request)>;
  // Replies through `call`, at once or later, and records refusals itself.
  using CallHandler =
      std::function<void(const std::shared_ptr<UnaryCall>& call, const std::string& request)>;
  enum class UnaryThread {
    kOfItsOwn,   // one of `unary_threads`: the handler may wait, for example for files
    kOfStreams,  // one of `threads`: the handler never waits, and does not wait behind others
  };

  static constexpr size_t kMaxUnaryBytes = 64 << 10;

  struct Options {
    std::string bind_address = "127.0.0.1:0";  // host:port; port 0 picks a free one
    // Calls that the caller's certificate does not allow are refused with PERMISSION_DENIED
    // (common/security/access_rules.h). Connections of other users are closed
    // (connection_listener.h).
    GrpcCredentials credentials;
    // Gets both. May be null; outlives the server.
    AuditLog* audit = nullptr;
    int threads = 2;
    int unary_threads = 1;
    // A longer message ends its stream with RESOURCE_EXHAUSTED.
    size_t max_message_bytes = size_t{256} << 20;
    // The streams of this process, which share their bounds with those of other servers. Null: this
    // server has a table of its own, with the default bounds.
    std::shared_ptr<ServedStreams> streams;
    // Open connections. Beyond them, those without a call make room (connection_gate.h).
    ConnectionBounds connections;
    // About the most that gRPC holds of what all clients have sent (BoundConnections).
    size_t max_received_bytes = size_t{16} << 30;
    // Further unary calls that would have to wait for a thread, of all callers and of one peer, are
    // refused with RESOURCE_EXHAUSTED.
    size_t max_waiting_unary = 64;
    size_t max_waiting_unary_per_peer = 16;
    // The unary calls that are open. What they queue counts here, and not with the streams.
    StreamBounds call_bounds = DefaultCallBounds();
    // Told of unary calls that are refused for want of room, and of connections that are closed for
    // want of a descriptor, each at most every 10 seconds.
    std::function<void(const std::string&)> log;
    // A stream or unary call that has sent no whole message so long after it was opened ends with
    // DEADLINE_EXCEEDED.
    absl::Duration first_message_timeout = absl::Seconds(10);
    // A stream that was closed ends after this time, even if its client has not read everything.
    absl::Duration close_timeout = absl::Seconds(30);
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    // Shutdown cuts calls that have not ended after this time.
    absl::Duration shutdown_timeout = absl::Seconds(2);
  };

  static StreamBounds DefaultCallBounds();

  // `factory`: for streams of kExchangeMethod. Null: the server has no such method.
  GrpcStreamServer(Options options, StreamHandlerFactory factory);
  ~GrpcStreamServer();  // Shutdown()

  // Call it before Start. `method` is the full name, such as "/sluice.Pserver/SaveShards". A
  // request of more than `max_bytes` is INVALID_ARGUMENT.
  void RegisterUnary(const std::string& method, UnaryHandler handler,
                     UnaryThread thread = UnaryThread::kOfItsOwn,
                     size_t max_bytes = kMaxUnaryBytes);
  // The same for a handler that may reply later.
  void RegisterCall(const std::string& method, CallHandler handler, UnaryThread thread,
                    size_t max_bytes);
  // The same for streams of another method.
  void RegisterStream(const std::string& method, StreamHandlerFactory factory);

  // UNAVAILABLE says why the address cannot be bound (in use, not on this host, ...).
  absl::Status Start();
  // The port that was bound; 0 before Start.
  int port() const;

  // Ends every stream with UNAVAILABLE and lets unary handlers finish. Returns when every handler
  // has had its OnClosed and is destroyed. Streams that others still hold stay valid and do
  // nothing. Safe to call twice.
  void Shutdown();

  // Changes Options.max_received_bytes. Safe from any thread.
  void SetMaxReceivedBytes(size_t bytes);
  size_t max_received_bytes() const;

  // The number of open streams of this server.
  int open_streams() const;
  // Open connections, without those that were ended to make room.
  size_t open_connections() const;
  // The bytes that Send has accepted and that are not yet sent or lost, of all Options.streams.
  size_t queued_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

// Bounds what a connection to a gRPC server may hold without calling anything. GrpcStreamServer
// calls it; servers that are built otherwise call it themselves.
//
// A connection is closed when its handshake (TLS and HTTP/2) is not over after 10 seconds, or when
// it had no call for 5 minutes; clients connect again with their next call. One connection has at
// most 100 calls at a time. Compressed messages are refused.
//
// `received` bounds, about, what gRPC holds of what clients have sent and no handler has dropped,
// such as a message whose end has not come. Beyond that it closes connections without calls, and
// cuts calls at random with RESOURCE_EXHAUSTED until the memory is free again.
void BoundConnections(const grpc::ResourceQuota& received, grpc::ServerBuilder* builder);

}  // namespace sluice
