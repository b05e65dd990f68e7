#include "common/security/accept_hook.h"

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <atomic>

#include "tests/common/transport/recording_streams.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

Watched g_watched;
std::vector<uint16_t> g_ports;  // of clients, guarded by g_watched

void NotePort(int fd) {
  sockaddr_in6 peer = {};
  socklen_t length = sizeof(peer);
  ASSERT_EQ(getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length), 0);
  g_watched.Change([&] { g_ports.push_back(ntohs(peer.sin6_port)); });
}

TEST(AcceptHookTest, SeesEachConnectionWithItsPeer) {
  grpc::ServerBuilder builder;
  grpc::AsyncGenericService service;
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterAsyncGenericService(&service);
  const auto queue = builder.AddCompletionQueue();
  OnEachAccept(&NotePort, &builder);
  const auto server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  std::thread polls([&] {
    void* tag;
    bool ok;
    while (queue->Next(&tag, &ok)) {
    }
  });
  for (size_t i = 1; i <= 3; ++i) {
    const int client = ConnectTo(port);
    sockaddr_in own = {};
    socklen_t length = sizeof(own);
    ASSERT_EQ(getsockname(client, reinterpret_cast<sockaddr*>(&own), &length), 0);
    ASSERT_TRUE(g_watched.Await([&] { return g_ports.size() == i; }));
    EXPECT_EQ(g_ports.back(), ntohs(own.sin_port));
    close(client);
  }
  server->Shutdown();
  queue->Shutdown();
  polls.join();
}

}  // namespace
}  // namespace sluice
