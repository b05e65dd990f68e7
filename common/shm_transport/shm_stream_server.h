// The server's half of the data plane through shared memory, beside a GrpcStreamServer.
//
// A caller that the GrpcStreamServer has identified gets an invitation (Invite), and connects with
// it to this server's local socket (shm_handshake.h). Streams have the bounds, the threads and the
// ends that they have over gRPC (grpc_stream_server.h).
//
// Thread safety: Invite, open_streams and queued_bytes from any thread, also before Start and after
// Shutdown. The rest belongs to one thread; Shutdown must not run in a handler.
//
// Memory: a client makes the memory of its stream, twice Options.ring_bytes; the kernel charges a
// page to whichever end uses it first. Handlers get
// messages of at most half of a ring in place (StreamHandler::OnLent), and copies of longer ones.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/security/audit_log.h"
#include "common/shm_transport/shm_link.h"
#include "common/transport/served_streams.h"
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
    // A longer first message of a stream ends it with RESOURCE_EXHAUSTED: whoever sends it has not
    // shown a pass. A hello names the acknowledged shards of a pserver, with about 5 bytes for each
    // of the 2^20 that a job may have.
    size_t max_first_message_bytes = size_t{8} << 20;
    // As in GrpcStreamServer::Options.
    std::shared_ptr<ServedStreams> streams;
    size_t max_message_bytes = size_t{256} << 20;
    absl::Duration first_message_timeout = absl::Seconds(10);
    absl::Duration close_timeout = absl::Seconds(30);
    absl::Duration keepalive_time = absl::Seconds(10);
    absl::Duration keepalive_timeout = absl::Seconds(10);
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

  // The number of open streams of this server.
  int open_streams() const;
  // The bytes that Send has accepted and that are not yet in a ring or lost, of all
  // Options.streams.
  size_t queued_bytes() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace sluice
