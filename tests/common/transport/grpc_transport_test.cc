#include "common/transport/grpc_transport.h"

#include "tests/common/base/free_port.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/transport/cutting_relay.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/stream_conformance.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

class GrpcHarness : public TransportHarness {
 public:
  Transport* transport() override { return &transport_; }
  std::string Start(StreamHandlerFactory factory, Unary unary) override {
    server_ = std::make_unique<GrpcStreamServer>(GrpcStreamServer::Options(), std::move(factory));
    if (unary != nullptr) {
      server_->RegisterUnary(kSaveShards, [unary](const PeerIdentity&, const std::string& request) {
        return unary(request);
      });
    }
    const absl::Status started = server_->Start();
    EXPECT_TRUE(started.ok()) << started;
    return AddressOf(*server_);
  }
  void Kill() override { server_->Shutdown(); }
  std::string AddressOfNobody() override { return absl::StrCat("127.0.0.1:", FreePort()); }

 private:
  std::unique_ptr<GrpcStreamServer> server_;
  GrpcTransport transport_;
};

INSTANTIATE_TEST_SUITE_P(Grpc, StreamConformanceTest,
                         ::testing::Values([] { return std::make_unique<GrpcHarness>(); }));

TEST(GrpcTransportTest, QueueBeyondTheLimitEndsTheStream) {
  GrpcTransport::Options options;
  options.max_queued_bytes = 1000;
  GrpcTransport transport(options);
  ScriptedServer scripted(Echo);
  auto server = StartServer(scripted.factory());
  RecordingClient client(&transport, AddressOf(*server));
  client.Send(std::string(1001, 'x'));
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kResourceExhausted) << client.status();
  client.Destroy();
  EXPECT_EQ(transport.queued_bytes(), 0u);
}

TEST(GrpcTransportTest, ProxiesOfTheEnvironmentAreNotUsed) {
  ScriptedServer scripted(Echo);
  auto server = StartServer(scripted.factory());
  // Nothing listens on port 9.
  setenv("http_proxy", "http://127.0.0.1:9", 1);
  GrpcTransport transport;
  RecordingClient client(&transport, AddressOf(*server));
  unsetenv("http_proxy");
  client.Send("x");
  EXPECT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
  client.Destroy();
}

TEST(GrpcTransportTest, QueuedBytesAreCounted) {
  GrpcTransport transport;
  ScriptedServer scripted(Echo);
  auto server = StartServer(scripted.factory());
  RecordingClient client(&transport, AddressOf(*server));
  client.Send(std::string(5000, 'x'));
  ASSERT_TRUE(client.AwaitMessages(1));
  while (transport.queued_bytes() > 0) std::this_thread::yield();
  client.Destroy();
  EXPECT_EQ(transport.queued_bytes(), 0u);
}

TEST(GrpcTransportTest, StreamToARestartedServerIsServed) {
  ScriptedServer scripted(Echo);
  GrpcTransport transport;
  GrpcStreamServer::Options options;
  options.bind_address = absl::StrCat("127.0.0.1:", FreePort());
  auto server = StartServer(scripted.factory(), options);
  {
    RecordingClient client(&transport, options.bind_address);
    client.Send("x");
    ASSERT_TRUE(client.AwaitMessages(1));
    server.reset();
    ASSERT_TRUE(client.AwaitClosed());
  }
  server = StartServer(scripted.factory(), options);
  bool served = false;
  for (int attempt = 0; attempt < 2000 && !served; ++attempt) {  // the channel backs off meanwhile
    RecordingClient client(&transport, options.bind_address);
    client.Send("x");
    served = client.AwaitMessageOrEnd(1);
    client.Destroy();
    if (!served) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_TRUE(served);
}

// A channel would wait longer after each failure, or for ever, while streams to it fail.
TEST(GrpcTransportTest, WithTlsTheStreamAfterACutHandshakeHasANewConnection) {
  const TestCertificates certificates("grpc_transport");
  auto own = GrpcCredentials::Create(certificates.Of(PeerRole::kPserver));
  auto worker = GrpcCredentials::Create(certificates.Of(PeerRole::kWorker));
  ASSERT_TRUE(own.ok() && worker.ok());
  GrpcStreamServer::Options served;
  served.credentials = *std::move(own);
  ScriptedServer scripted(Echo);
  auto server = StartServer(scripted.factory(), served);
  constexpr size_t kCuts = 3;
  CuttingRelay relay(server->port(), /*bytes=*/100, kCuts);
  GrpcTransport::Options options;
  options.credentials = *std::move(worker);
  GrpcTransport transport(options);
  size_t failed = 0;
  for (bool served = false; !served && failed <= kCuts; failed += served ? 0 : 1) {
    RecordingClient client(&transport, absl::StrCat("127.0.0.1:", relay.port()));
    client.Send("x");
    served = client.AwaitMessageOrEnd(1);
    client.Destroy();
  }
  EXPECT_EQ(relay.has_cut(), kCuts);
  EXPECT_LE(failed, kCuts) << "streams failed without a connection of their own";
}

TEST(GrpcTransportTest, UnaryCallThatTakesTooLongIsDeadlineExceeded) {
  Watched watched;
  bool release = false;
  GrpcStreamServer server({}, nullptr);
  server.RegisterUnary(kSaveShards,
                       [&](const PeerIdentity&, const std::string&) -> absl::StatusOr<std::string> {
                         watched.Await([&] { return release; });
                         return "late";
                       });
  ASSERT_TRUE(server.Start().ok());
  GrpcTransport transport;
  auto reply = transport.Call(AddressOf(server), kSaveShards, "", absl::Milliseconds(50));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded) << reply.status();
  watched.Change([&] { release = true; });
}

TEST(GrpcTransportTest, SilentPeerIsUnavailableAfterTheConnectTimeout) {
  TcpRelay silent(/*target_port=*/0);
  GrpcTransport::Options options;
  options.connect_timeout = absl::Milliseconds(100);
  GrpcTransport transport(options);
  RecordingClient client(&transport, absl::StrCat("127.0.0.1:", silent.port()));
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable) << client.status();
}

TEST(GrpcTransportTest, AUnaryCallToASilentPeerIsUnavailableAfterTheConnectTimeout) {
  TcpRelay silent(/*target_port=*/0);
  GrpcTransport::Options options;
  options.connect_timeout = absl::Milliseconds(100);
  GrpcTransport transport(options);
  const auto reply =
      transport.Call(absl::StrCat("127.0.0.1:", silent.port()), kSaveShards, "", absl::Seconds(10));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable) << reply.status();
}

TEST(GrpcTransportTest, PeerThatFallsSilentIsUnavailableAfterKeepalive) {
  ScriptedServer scripted(Echo);
  auto server = StartServer(scripted.factory());
  TcpRelay relay(server->port());
  GrpcTransport::Options options;
  options.keepalive_time = options.keepalive_timeout = absl::Seconds(1);
  GrpcTransport transport(options);
  RecordingClient client(&transport, absl::StrCat("127.0.0.1:", relay.port()));
  client.Send("x");
  ASSERT_TRUE(client.AwaitMessages(1));
  relay.FallSilent();
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable) << client.status();
}

}  // namespace
}  // namespace sluice
