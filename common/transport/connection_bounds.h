// Bounds for what a connection to a gRPC server may hold without calling anything.
//
// Thread safety: one thread.
#pragma once

namespace grpc {
class ResourceQuota;
class ServerBuilder;
}  // namespace grpc

namespace sluice {

// A connection is closed when its handshake (TLS and HTTP/2) is not over after 10 seconds, or when
// it had no call for 5 minutes; clients connect again with their next call. One connection has at
// most 100 calls at a time. Compressed messages are refused. The port survives a time without file
// descriptors (accept_reserve.h).
//
// `received` bounds, about, what gRPC holds of what clients have sent and no handler has dropped,
// such as a message whose end has not come. Beyond that it closes connections without calls, and
// cuts calls at random with RESOURCE_EXHAUSTED until the memory is free again.
void BoundConnections(const grpc::ResourceQuota& received, grpc::ServerBuilder* builder);

}  // namespace sluice
