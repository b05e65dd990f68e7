// Bounds for what a connection to a gRPC server may hold without calling anything.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>

namespace grpc {
class ServerBuilder;
}

namespace sluice {

// A connection is closed when its handshake (TLS and HTTP/2) is not over after 10 seconds, or when
// it had no call for 5 minutes; clients connect again with their next call. One connection has at
// most 100 calls at a time. The port survives a time without file descriptors (accept_reserve.h).
//
// gRPC holds at most about `max_received_bytes` of what clients have sent and no handler has
// dropped, such as a message whose end has not come. Beyond that it closes connections without
// calls, and cuts calls at random with RESOURCE_EXHAUSTED until the memory is free again.
void BoundConnections(size_t max_received_bytes, grpc::ServerBuilder* builder);

}  // namespace sluice
