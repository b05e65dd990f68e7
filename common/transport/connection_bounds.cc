#include "common/transport/connection_bounds.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include "common/security/accept_reserve.h"

namespace sluice {

void BoundConnections(const grpc::ResourceQuota& received, grpc::ServerBuilder* builder) {
  KeepAcceptReserve();
  builder->SetResourceQuota(received);
  // gRPC's defaults are 120 seconds, for ever, and without a limit.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
  // gRPC checks the length of a compressed message, and then inflates it without a bound. Left as
  // it is, it is no message that anybody understands.
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
}

}  // namespace sluice
