// The server's half of the data plane through shared memory, beside a GrpcStreamServer.
//
// A caller that the GrpcStreamServer has identified gets an invitation (Invite), and connects with
// it to this server's local socket (shm_handshake.h). Streams have the bounds, the threads and the
// ends that they have over gRPC (grpc_stream_server.h).
//
// Thread safety: Invite, open_streams and queued_bytes from any thread, also before Start and after
// Shutdown. The rest belongs to one thread; Shutdown must not run in a handler.
//
// Memory: the memory of a stream belongs to its client, twice Options.ring_bytes. Received messages
// are copies.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/security/audit_log.h"
#include "common/shm_transport/shm_link.h"
#include "common/transport/transport.h"

namespace sluice {

class ShmStreamServer {
 public:
  struct Options {
    AuditLog* audit = nullptr;  // gets refusals at the socket; may be null; outlives the server
    int threads = 2;
    // Four frames of the data plane: a sender need not wait for the reader after each. Pages that
    // no byte has passed through take no memory.
    size_t ring_bytes = size_t{4} << 20;
    // As in GrpcStreamServer::Options.
    size_t max_message_bytes = size_t{256} << 20;
    size_t max_queued_bytes = size_t{1} << 30;
    size_t max_total_queued_bytes = size_t{16} << 30;
    int max_streams = 1024;
    absl::Duration first_message_timeout = absl::Seconds(10);
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(10);
    // The streams that another server has; they count for max_streams. May be empty.
    std::function<int()> other_streams;
    std::string boot_id;  // empty: that of this host
  };

  // `factory`: for streams of kExchangeMethod.
  ShmStreamServer(Options options, StreamHandlerFactory factory);
  ~ShmStreamServer();  // Shutdown()

  // Begins to listen at a local socket. Errors say why it cannot.
  absl::Status Start();

  // Answers kOpenSharedMemoryMethod: serialized request in, serialized reply out. Never waits.
  // FAILED_PRECONDITION: the caller is on another host, or speaks another protocol. UNAVAILABLE:
  // the server is not running.
  absl::StatusOr<std::string> Invite(const PeerIdentity& peer, const std::string& request);

  // As GrpcStreamServer::Shutdown.
  void Shutdown();

  int open_streams() const;
  // The bytes of all streams that Send has accepted and that are not yet in a ring or lost.
  size_t queued_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
