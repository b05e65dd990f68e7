// Bounds for what a connection to a gRPC server may hold without calling anything.
//
// Thread safety: one thread.
#pragma once

namespace grpc {
class ServerBuilder;
}

namespace sluice {

// A connection is closed when its handshake (TLS and HTTP/2) is not over after 10 seconds, or when
// it had no call for 5 minutes; clients connect again with their next call. One connection has at
// most 100 calls at a time.
void BoundConnections(grpc::ServerBuilder* builder);

}  // namespace sluice
