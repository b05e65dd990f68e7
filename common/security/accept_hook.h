// Sees the connections that a gRPC server accepts, before their handshakes begin.
//
// gRPC lets a server set options of its sockets (a socket mutator), on the thread that accepts and
// then makes the TLS session. Only the name of the mutator's type is public, so its layout is
// repeated here, and used with the version of gRPC that has it.
//
// Thread safety: one thread; `on_accept` runs on threads of gRPC.
#pragma once

namespace grpc {
class ServerBuilder;
}

namespace sluice {

// `on_accept` gets the descriptor, and must only look at it. It is never called with other versions
// of gRPC.
void OnEachAccept(void (*on_accept)(int fd), grpc::ServerBuilder* builder);

}  // namespace sluice
