#include "common/transport/grpc_transport.h"

#include "common/transport/grpc_stream_server.h"
#include "tests/common/transport/stream_conformance.h"

namespace sluice {
namespace {

constexpr char kSaveShards[] = "/sluice.Pserver/SaveShards";

std::unique_ptr<GrpcStreamServer> StartServer(StreamHandlerFactory factory,
                                              GrpcStreamServer::Options options = {}) {
  auto server = std::make_unique<GrpcStreamServer>(std::move(options), std::move(factory));
  const absl::Status started = server->Start();
  EXPECT_TRUE(started.ok()) << started;
  return server;
}

std::string AddressOf(const GrpcStreamServer& server) {
  return absl::StrCat("127.0.0.1:", server.port());
}

class GrpcHarness : public TransportHarness {
 public:
  Transport* transport() override { return &transport_; }
  std::string Start(StreamHandlerFactory factory, Unary unary) override {
    server_ = std::make_unique<GrpcStreamServer>(GrpcStreamServer::Options(), std::move(factory));
    if (unary != nullptr) server_->RegisterUnary(kSaveShards, std::move(unary));
    const absl::Status started = server_->Start();
    EXPECT_TRUE(started.ok()) << started;
    return AddressOf(*server_);
  }
  void Kill() override { server_->Shutdown(); }
  // A port that was free a moment ago.
  std::string AddressOfNobody() override {
    auto server = StartServer(nullptr);
    return AddressOf(*server);
  }

 private:
  std::unique_ptr<GrpcStreamServer> server_;
  GrpcTransport transport_;
};

INSTANTIATE_TEST_SUITE_P(Grpc, StreamConformanceTest,
                         ::testing::Values([] { return std::make_unique<GrpcHarness>(); }));

TEST(GrpcStreamServerTest, PortInUseIsSaid) {
  auto first = StartServer(nullptr);
  GrpcStreamServer::Options options;
  options.bind_address = AddressOf(*first);
  GrpcStreamServer second(options, nullptr);
  const absl::Status status = second.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr(options.bind_address),
                               ::testing::HasSubstr("Address already in use"),
                               ::testing::HasSubstr("choose another")));
}

TEST(GrpcStreamServerTest, AddressThatCannotBeBoundIsSaid) {
  for (const char* address : {"203.0.113.7:0", "nonsense", "127.0.0.1:notaport"}) {
    GrpcStreamServer::Options options;
    options.bind_address = address;
    GrpcStreamServer server(options, nullptr);
    const absl::Status status = server.Start();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << address;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(address));
  }
}

TEST(GrpcStreamServerTest, MoreThanTheMostStreamsAreRefusedUntilOneEnds) {
  ScriptedServer scripted(Echo);
  GrpcStreamServer::Options options;
  options.max_streams = 2;
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport transport;
  RecordingClient first(&transport, AddressOf(*server));
  ASSERT_TRUE(scripted.AwaitOpened(1));
  RecordingClient second(&transport, AddressOf(*server));
  ASSERT_TRUE(scripted.AwaitOpened(2));
  EXPECT_EQ(server->open_streams(), 2);
  RecordingClient third(&transport, AddressOf(*server));
  ASSERT_TRUE(third.AwaitClosed());
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted) << third.status();
  first.Destroy();
  ASSERT_TRUE(scripted.AwaitClosed(1));
  while (server->open_streams() > 1) std::this_thread::yield();
  RecordingClient fourth(&transport, AddressOf(*server));
  fourth.Send("x");
  EXPECT_TRUE(fourth.AwaitMessages(1));
}

TEST(GrpcStreamServerTest, TooLongMessageEndsItsStreamOnly) {
  ScriptedServer scripted(Echo);
  GrpcStreamServer::Options options;
  options.max_message_bytes = 100000;
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport transport;
  RecordingClient modest(&transport, AddressOf(*server)), greedy(&transport, AddressOf(*server));
  greedy.Send(std::string(100001, 'x'));
  ASSERT_TRUE(greedy.AwaitClosed());
  EXPECT_EQ(greedy.status().code(), absl::StatusCode::kResourceExhausted) << greedy.status();
  modest.Send(std::string(100000, 'x'));
  EXPECT_TRUE(modest.AwaitMessages(1));
}

TEST(GrpcStreamServerTest, ClientThatDoesNotReadIsCutAtTheBound) {
  ScriptedServer scripted([](Stream* stream, const std::string&) {
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 64; ++i) stream->Send({Slice::FromString(block)});
  });
  GrpcStreamServer::Options options;
  options.max_queued_bytes = 8 << 20;
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport transport;
  RecordingClient client(&transport, AddressOf(*server));
  client.Send("x");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_FALSE(client.status().ok());
  ASSERT_TRUE(scripted.AwaitClosed(1));
  client.Destroy();
  server->Shutdown();
  EXPECT_EQ(server->queued_bytes(), 0u);
}

TEST(GrpcTransportTest, QueueBeyondTheBoundEndsTheStream) {
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

TEST(GrpcTransportTest, QueuedBytesAreCounted) {
  GrpcTransport transport;
  auto free_port = StartServer(nullptr);
  const std::string address = AddressOf(*free_port);
  free_port.reset();
  ScriptedServer scripted(Echo);
  auto server = StartServer(scripted.factory());
  RecordingClient client(&transport, AddressOf(*server));
  client.Send(std::string(5000, 'x'));
  ASSERT_TRUE(client.AwaitMessages(1));
  while (transport.queued_bytes() > 0) std::this_thread::yield();
  client.Destroy();
  EXPECT_EQ(transport.queued_bytes(), 0u);
}

TEST(GrpcTransportTest, StreamToAServerThatComesBackIsServed) {
  ScriptedServer scripted(Echo);
  GrpcTransport transport;
  auto server = StartServer(scripted.factory());
  GrpcStreamServer::Options options;
  options.bind_address = AddressOf(*server);
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

TEST(GrpcTransportTest, UnaryCallThatTakesTooLongIsDeadlineExceeded) {
  Watched watched;
  bool release = false;
  GrpcStreamServer server({}, nullptr);
  server.RegisterUnary(kSaveShards, [&](const std::string&) -> absl::StatusOr<std::string> {
    watched.Await([&] { return release; });
    return "late";
  });
  ASSERT_TRUE(server.Start().ok());
  GrpcTransport transport;
  auto reply = transport.Call(AddressOf(server), kSaveShards, "", absl::Milliseconds(50));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kDeadlineExceeded) << reply.status();
  watched.Change([&] { release = true; });
}

TEST(GrpcTransportTest, UnaryCallDoesNotBlockStreams) {
  Watched watched;
  bool entered = false, release = false;
  ScriptedServer scripted(Echo);
  GrpcStreamServer::Options options;
  options.threads = 1;
  GrpcStreamServer server(options, scripted.factory());
  server.RegisterUnary(kSaveShards, [&](const std::string&) -> absl::StatusOr<std::string> {
    watched.Change([&] { entered = true; });
    watched.Await([&] { return release; });
    return "done";
  });
  ASSERT_TRUE(server.Start().ok());
  GrpcTransport transport;
  std::thread saving([&] {
    auto reply = transport.Call(AddressOf(server), kSaveShards, "", absl::Seconds(20));
    EXPECT_TRUE(reply.ok()) << reply.status();
  });
  ASSERT_TRUE(watched.Await([&] { return entered; }));
  RecordingClient client(&transport, AddressOf(server));
  client.Send("x");
  EXPECT_TRUE(client.AwaitMessages(1));
  watched.Change([&] { release = true; });
  saving.join();
}

}  // namespace
}  // namespace sluice
