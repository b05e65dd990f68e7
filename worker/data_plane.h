// The worker's transport to the pservers: gRPC, and shared memory where --transport allows it.
//
// Thread safety: as the transport's. It outlives all users of the transport.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/daemon/identity.h"
#include "common/shm_transport/shm_transport.h"
#include "common/transport/grpc_transport.h"

namespace sluice {

class DataPlane {
 public:
  // `log` gets a line for each pserver that says how it is reached.
  DataPlane(const Identity& identity, std::function<void(const std::string&)> log);

  Transport* transport();

 private:
  GrpcTransport grpc_;
  std::unique_ptr<ShmTransport> shm_;  // null: gRPC alone
};

}  // namespace sluice
