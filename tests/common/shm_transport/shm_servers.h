// A server and a client of streams through shared memory, for tests. Calls go through an
// InProcessTransport, so that no gRPC is linked.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "common/shm_transport/shm_handshake.h"
#include "common/shm_transport/shm_stream_server.h"
#include "common/shm_transport/shm_transport.h"
#include "tests/common/transport/in_process_transport.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {

inline constexpr char kShmAddress[] = "pserver-0";

// A server at kShmAddress of `control`.
class ShmTestServer {
 public:
  ShmTestServer(InProcessTransport* control, StreamHandlerFactory factory,
                ShmStreamServer::Options options = {})
      : control_(control), server_(std::move(options), std::move(factory)) {
    const absl::Status started = server_.Start();
    EXPECT_TRUE(started.ok()) << started;
    control_->RegisterUnary(
        kShmAddress, kOpenSharedMemoryMethod,
        [this](const std::string& request) { return server_.Invite(peer_, request); });
  }
  ~ShmTestServer() { Stop(); }
  void Stop() {
    control_->Unbind(kShmAddress);
    server_.Shutdown();
  }
  // The identity of all callers from now on.
  void SetPeer(PeerIdentity peer) { peer_ = std::move(peer); }
  ShmStreamServer* operator->() { return &server_; }

 private:
  InProcessTransport* const control_;
  PeerIdentity peer_;
  ShmStreamServer server_;
};

inline ShmTransport::Options OptionsWith(InProcessTransport* control) {
  ShmTransport::Options options;
  options.control = control;
  return options;
}

}  // namespace sluice
