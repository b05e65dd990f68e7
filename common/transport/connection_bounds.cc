#include "common/transport/connection_bounds.h"

#include <grpcpp/server_builder.h>

namespace sluice {

void BoundConnections(grpc::ServerBuilder* builder) {
  // gRPC's defaults are 120 seconds, for ever, and without a limit.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
}

}  // namespace sluice
