// Servers and addresses for the tests of both halves of the gRPC transport.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/transport/grpc_stream_server.h"
#include "gtest/gtest.h"

namespace sluice {

inline constexpr char kSaveShards[] = "/sluice.Pserver/SaveShards";

inline std::unique_ptr<GrpcStreamServer> StartServer(StreamHandlerFactory factory,
                                                     GrpcStreamServer::Options options = {}) {
  auto server = std::make_unique<GrpcStreamServer>(std::move(options), std::move(factory));
  const absl::Status started = server->Start();
  EXPECT_TRUE(started.ok()) << started;
  return server;
}

inline std::string AddressOf(const GrpcStreamServer& server) {
  return absl::StrCat("127.0.0.1:", server.port());
}

}  // namespace sluice
