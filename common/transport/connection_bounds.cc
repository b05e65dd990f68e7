#include "common/transport/connection_bounds.h"

#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include "common/security/accept_reserve.h"

namespace sluice {

void BoundConnections(size_t max_received_bytes, grpc::ServerBuilder* builder) {
  KeepAcceptReserve();
  grpc::ResourceQuota quota("server");
  builder->SetResourceQuota(quota.Resize(max_received_bytes));
  // gRPC's defaults are 120 seconds, for ever, and without a limit.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, 10'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, 300'000);
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, 100);
}

}  // namespace sluice
