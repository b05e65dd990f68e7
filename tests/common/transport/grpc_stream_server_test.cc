#include "common/transport/grpc_stream_server.h"

#include <grpcpp/create_channel.h>

#include <map>
#include <random>

#include "common/transport/grpc_transport.h"
#include "common/wire/frame.h"
#include "proto/pserver.grpc.pb.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/security/test_certificates.h"
#include "tests/common/transport/grpc_servers.h"
#include "tests/common/transport/recorded_cuts.h"
#include "tests/common/transport/recording_streams.h"
#include "tests/common/transport/tcp_relay.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

MATCHER_P(IsCut, code, "") {
  return arg.first.rfind("127.0.0.1:", 0) == 0 && arg.second.code() == code &&
         !arg.second.message().empty();
}

TEST(GrpcStreamServerTest, PortInUseIsReported) {
  auto first = StartServer(nullptr);
  GrpcStreamServer::Options options;
  options.bind_address = AddressOf(*first);
  GrpcStreamServer second(options, nullptr);
  const absl::Status status = second.Start();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              ::testing::AllOf(::testing::HasSubstr(options.bind_address),
                               ::testing::HasSubstr("Address already in use")));
}

TEST(GrpcStreamServerTest, AddressThatCannotBeBoundIsReported) {
  for (const char* address : {"203.0.113.7:0", "nonsense", "127.0.0.1:notaport"}) {
    GrpcStreamServer::Options options;
    options.bind_address = address;
    GrpcStreamServer server(options, nullptr);
    const absl::Status status = server.Start();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << address;
    EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr(address));
  }
}

TEST(GrpcStreamServerTest, StreamsBeyondTheMaximumAreRefusedUntilOneEnds) {
  ScriptedServer scripted(Echo);
  RecordedAudit audit("pserver");
  Watched watched;
  std::vector<std::string> lines;
  StreamBounds bounds;
  bounds.max_streams = 2;
  RoomReports::Options reports;
  reports.audit = audit.log();
  reports.log = [&](const std::string& line) { watched.Change([&] { lines.push_back(line); }); };
  GrpcStreamServer::Options options;
  options.streams = std::make_shared<ServedStreams>(bounds, reports);
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport transport;
  RecordingClient first(&transport, AddressOf(*server)), second(&transport, AddressOf(*server));
  for (RecordingClient* client : {&first, &second}) {
    client->Send("x");
    ASSERT_TRUE(client->AwaitMessages(1));
  }
  EXPECT_EQ(server->open_streams(), 2);
  RecordingClient third(&transport, AddressOf(*server));
  ASSERT_TRUE(third.AwaitClosed());
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted) << third.status();
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 1u);
  EXPECT_TRUE(watched.Await([&] { return lines.size() == 1; }));
  first.Destroy();
  ASSERT_TRUE(scripted.AwaitClosed(1));
  while (server->open_streams() > 1) std::this_thread::yield();
  RecordingClient fourth(&transport, AddressOf(*server));
  fourth.Send("x");
  EXPECT_TRUE(fourth.AwaitMessages(1));
}

TEST(GrpcStreamServerTest, TooLongMessageEndsOnlyItsStream) {
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

TEST(GrpcStreamServerTest, ClientThatDoesNotReadIsCutAtTheLimit) {
  ScriptedServer scripted([](Stream* stream, const std::string&) {
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 64; ++i) stream->Send({Slice::FromString(block)});
  });
  StreamBounds bounds;
  bounds.max_queued_bytes = 8 << 20;
  RecordedCuts cuts;
  GrpcStreamServer::Options options;
  options.streams = std::make_shared<ServedStreams>(bounds, cuts.reports());
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
  EXPECT_THAT(cuts.all(), ElementsAre(IsCut(absl::StatusCode::kResourceExhausted)));
}

TEST(GrpcStreamServerTest, TheClientWithTheMostQueuedIsCutWhenAllHaveTooMuch) {
  // Answers with as many MiB as the request has bytes.
  ScriptedServer scripted([](Stream* stream, const std::string& text) {
    const std::string block(1 << 20, 'x');
    for (size_t i = 0; i < text.size(); ++i) stream->Send({Slice::FromString(block)});
  });
  StreamBounds bounds;
  bounds.max_total_queued_bytes = 40 << 20;
  RecordedAudit audit("pserver");
  RecordedCuts cuts(audit.log());
  GrpcStreamServer::Options options;
  options.streams = std::make_shared<ServedStreams>(bounds, cuts.reports());
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport transport;
  // A client whose callback does not return reads nothing more.
  Watched watched;
  bool release = false;
  StreamCallbacks stalled;
  absl::Status end;
  bool closed = false;
  stalled.on_message = [&](Message) { watched.Await([&] { return release; }); };
  stalled.on_closed = [&](absl::Status status) {
    watched.Change([&] {
      end = std::move(status);
      closed = true;
    });
  };
  GrpcTransport other;  // with a thread of its own
  const auto greedy = other.Connect(AddressOf(*server), std::move(stalled));
  greedy->Send({Slice::FromString(std::string(40, 'x'))});
  while (server->queued_bytes() < size_t{24} << 20) std::this_thread::yield();
  RecordingClient modest(&transport, AddressOf(*server));
  for (int i = 0; i < 5; ++i) {
    modest.Send(std::string(20, 'x'));
    ASSERT_TRUE(modest.AwaitMessages(20 * (i + 1))) << "the client that reads is served";
  }
  EXPECT_TRUE(scripted.AwaitClosed(1));
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 1u);
  watched.Change([&] { release = true; });
  EXPECT_TRUE(watched.Await([&] { return closed; }));
  EXPECT_FALSE(end.ok());
  while (server->open_streams() > 1) std::this_thread::yield();
  EXPECT_THAT(cuts.all(), ElementsAre(IsCut(absl::StatusCode::kResourceExhausted)));
}

TEST(GrpcStreamServerTest, SilentStreamsOfAPeerMakeRoomForOnesThatSpeak) {
  ScriptedServer scripted(Echo);
  RecordedAudit audit("pserver");
  StreamBounds bounds;
  bounds.max_streams = 20;
  bounds.max_silent_streams_per_peer = 4;
  RoomReports::Options reports;
  reports.audit = audit.log();
  GrpcStreamServer::Options options;
  options.streams = std::make_shared<ServedStreams>(bounds, reports);
  options.first_message_timeout = absl::Minutes(10);
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport flooding, working;
  RecordingClient worker(&working, AddressOf(*server));
  worker.Send("x");
  ASSERT_TRUE(worker.AwaitMessages(1));
  std::vector<std::unique_ptr<RecordingClient>> flood;
  for (int i = 0; i < 40; ++i) {
    flood.push_back(std::make_unique<RecordingClient>(&flooding, AddressOf(*server)));
    if (i % 10 != 5) continue;
    RecordingClient again(&working, AddressOf(*server));
    again.Send("x");
    EXPECT_TRUE(again.AwaitMessages(1)) << again.status();
  }
  // Streams that are opened at the same time may reach the server in another order.
  ASSERT_TRUE(flood[0]->AwaitClosed());
  EXPECT_EQ(flood[0]->status().code(), absl::StatusCode::kResourceExhausted);
  while (audit.Refusals(kExchangeMethod, "room") < 36) std::this_thread::yield();
  while (server->open_streams() > 4 + 1) std::this_thread::yield();
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 36u);
  worker.Send("y");
  EXPECT_TRUE(worker.AwaitMessages(2));
}

TEST(GrpcStreamServerTest, AStreamThatSaysNothingIsEnded) {
  ScriptedServer scripted(Echo);
  GrpcStreamServer::Options options;
  options.first_message_timeout = absl::Seconds(1);
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport transport;
  RecordingClient talks(&transport, AddressOf(*server));
  talks.Send("x");
  ASSERT_TRUE(talks.AwaitMessages(1));
  RecordingClient silent(&transport, AddressOf(*server));
  ASSERT_TRUE(silent.AwaitClosed());
  EXPECT_EQ(silent.status().code(), absl::StatusCode::kDeadlineExceeded) << silent.status();
  talks.Send("y");
  EXPECT_TRUE(talks.AwaitMessages(2)) << "the timeout is over once a stream has spoken";
  while (server->open_streams() > 1) std::this_thread::yield();
}

TEST(GrpcStreamServerTest, AClosedStreamWhoseClientDoesNotReadEnds) {
  ScriptedServer scripted([](Stream* stream, const std::string&) {
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 64; ++i) stream->Send({Slice::FromString(block)});
    stream->Close();
  });
  GrpcStreamServer::Options options;
  options.close_timeout = absl::Milliseconds(300);
  RecordedAudit audit("pserver");
  options.audit = audit.log();
  auto server = StartServer(scripted.factory(), options);
  // A client whose callback does not return reads nothing more.
  Watched watched;
  bool release = false;
  StreamCallbacks stalled;
  stalled.on_message = [&](Message) { watched.Await([&] { return release; }); };
  stalled.on_closed = [](absl::Status) {};
  GrpcTransport transport;
  const auto stream = transport.Connect(AddressOf(*server), std::move(stalled));
  stream->Send({Slice::FromString("x")});
  ASSERT_TRUE(scripted.AwaitClosed(1));
  while (server->open_streams() > 0) std::this_thread::yield();
  EXPECT_EQ(server->queued_bytes(), 0u);
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 1u);
  watched.Change([&] { release = true; });
}

// A client asks for much, says that it sends no more, and does not read.
TEST(GrpcStreamServerTest, AnEndedStreamWithTheMostQueuedIsCutBeforeHonestOnes) {
  ScriptedServer scripted([](Stream* stream, const std::string& text) {
    const std::string block(1 << 20, 'x');
    for (size_t i = 0; i < text.size(); ++i) stream->Send({Slice::FromString(block)});
  });
  StreamBounds bounds;
  bounds.max_total_queued_bytes = 40 << 20;
  RecordedCuts cuts;
  GrpcStreamServer::Options options;
  options.streams = std::make_shared<ServedStreams>(bounds, cuts.reports());
  options.close_timeout = absl::Minutes(10);
  auto server = StartServer(scripted.factory(), options);
  GrpcTransport transport, other;
  StalledClient greedy(&other, AddressOf(*server));
  greedy.stream()->Send({Slice::FromString(std::string(36, 'x'))});
  greedy.stream()->Close();
  ASSERT_TRUE(scripted.AwaitClosed(1)) << "its stream has ended";
  RecordingClient modest(&transport, AddressOf(*server));
  modest.Send(std::string(20, 'x'));
  ASSERT_TRUE(modest.AwaitMessageOrEnd(20)) << "cut in the place of the other: " << modest.status();
  ASSERT_THAT(cuts.all(), ElementsAre(IsCut(absl::StatusCode::kResourceExhausted)));
  while (server->open_streams() > 1) std::this_thread::yield();
}

TEST(GrpcStreamServerTest, OneCallerCannotTakeTheRoomOfAllWaitingUnaryCalls) {
  TestCertificates certificates("stream_server");
  Watched watched;
  int entered = 0;
  bool release = false;
  ScriptedServer scripted(Echo);
  RecordedAudit audit("pserver");
  const auto credentials_of = [&](PeerRole role, const std::string& name) {
    return GrpcCredentials::Create(certificates.Of(role, name)).value();
  };
  GrpcStreamServer::Options options;
  options.credentials = credentials_of(PeerRole::kPserver, "0");
  options.max_waiting_unary = 10;
  options.max_waiting_unary_per_peer = 2;
  options.audit = audit.log();
  GrpcStreamServer server(options, scripted.factory());
  server.RegisterUnary(kSaveShards,
                       [&](const PeerIdentity&, const std::string&) -> absl::StatusOr<std::string> {
                         watched.Change([&] { ++entered; });
                         watched.Await([&] { return release; });
                         return "done";
                       });
  ASSERT_TRUE(server.Start().ok());
  std::map<std::string, std::vector<absl::StatusCode>> codes;
  // Made before the threads, which would write the same files.
  const std::map<std::string, GrpcCredentials> of_worker = {
      {"1", credentials_of(PeerRole::kWorker, "1")}, {"2", credentials_of(PeerRole::kWorker, "2")}};
  const auto call = [&](const std::string& name) {
    GrpcTransport::Options client;
    client.credentials = of_worker.at(name);
    GrpcTransport transport(client);
    const auto reply = transport.Call(AddressOf(server), kSaveShards, "", absl::Seconds(60));
    watched.Change([&] { codes[name].push_back(reply.status().code()); });
  };
  std::vector<std::thread> threads;
  threads.emplace_back(call, "1");
  ASSERT_TRUE(watched.Await([&] { return entered == 1; }));
  // Two of these wait, and the others are refused at once.
  for (int i = 0; i < 5; ++i) threads.emplace_back(call, "1");
  EXPECT_TRUE(watched.Await([&] { return codes["1"].size() == 3; }));
  threads.emplace_back(call, "2");
  watched.Change([&] { release = true; });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(codes["1"],
              testing::ElementsAre(absl::StatusCode::kResourceExhausted,
                                   absl::StatusCode::kResourceExhausted,
                                   absl::StatusCode::kResourceExhausted, absl::StatusCode::kOk,
                                   absl::StatusCode::kOk, absl::StatusCode::kOk));
  EXPECT_THAT(codes["2"], testing::ElementsAre(absl::StatusCode::kOk));
  EXPECT_EQ(audit.Refusals(kSaveShards, "room"), 3u);
}

TEST(GrpcStreamServerTest, RefusalsOfUnaryHandlersAreRecordedWithTheirReason) {
  RecordedAudit audit("pserver");
  GrpcStreamServer::Options options;
  options.audit = audit.log();
  GrpcStreamServer server(options, nullptr);
  server.RegisterUnary(
      kSaveShards,
      [&](const PeerIdentity&, const std::string& request) -> absl::StatusOr<std::string> {
        if (request == "odd") return absl::InvalidArgumentError("it cannot be parsed");
        if (request == "late") return absl::NotFoundError("the job has ended");
        const absl::Status refusal = absl::PermissionDeniedError("refused");
        return request.empty() ? refusal : Because(RefusalReason::kPath, refusal);
      });
  ASSERT_TRUE(server.Start().ok());
  GrpcTransport transport;
  for (const char* request : {"", "x", "x"}) {
    const auto reply = transport.Call(AddressOf(server), kSaveShards, request, absl::Seconds(20));
    EXPECT_TRUE(absl::IsPermissionDenied(reply.status())) << reply.status();
  }
  EXPECT_EQ(audit.Refusals(kSaveShards, "path"), 2u);
  EXPECT_EQ(audit.Refusals(kSaveShards, "other"), 1u);
  for (const char* request : {"odd", "late"})
    EXPECT_FALSE(transport.Call(AddressOf(server), kSaveShards, request, absl::Seconds(20)).ok());
  EXPECT_EQ(audit.Refusals(kSaveShards, "invalid"), 1u);
  uint64_t all = 0;
  for (const auto& [key, n] : audit.log()->counts().refusals) all += n;
  EXPECT_EQ(all, 4u);
}

TEST(GrpcStreamServerTest, UnaryCallsBeyondThoseThatWaitAreRefused) {
  Watched watched;
  int entered = 0;
  bool release = false;
  ScriptedServer scripted(Echo);
  GrpcStreamServer::Options options;
  options.max_waiting_unary = 1;
  GrpcStreamServer server(options, scripted.factory());
  server.RegisterUnary(kSaveShards,
                       [&](const PeerIdentity&, const std::string&) -> absl::StatusOr<std::string> {
                         watched.Change([&] { ++entered; });
                         watched.Await([&] { return release; });
                         return "done";
                       });
  ASSERT_TRUE(server.Start().ok());
  GrpcTransport transport;
  std::vector<absl::StatusCode> codes;
  const auto call = [&] {
    const auto reply = transport.Call(AddressOf(server), kSaveShards, "", absl::Seconds(20));
    watched.Change([&] { codes.push_back(reply.status().code()); });
  };
  std::thread first(call);
  ASSERT_TRUE(watched.Await([&] { return entered == 1; }));
  // One of these waits, and the other is refused at once.
  std::thread second(call), third(call);
  EXPECT_TRUE(watched.Await([&] { return codes.size() == 1; }));
  watched.Change([&] { release = true; });
  for (std::thread* thread : {&first, &second, &third}) thread->join();
  EXPECT_THAT(codes, testing::ElementsAre(absl::StatusCode::kResourceExhausted,
                                          absl::StatusCode::kOk, absl::StatusCode::kOk));
}

TEST(GrpcStreamServerTest, UnaryCallDoesNotBlockStreams) {
  Watched watched;
  bool entered = false, release = false;
  ScriptedServer scripted(Echo);
  GrpcStreamServer::Options options;
  options.threads = 1;
  GrpcStreamServer server(options, scripted.factory());
  server.RegisterUnary(kSaveShards,
                       [&](const PeerIdentity&, const std::string&) -> absl::StatusOr<std::string> {
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

// Answers a frame with its own payload, through the hand-written framing.
class FrameEcho : public StreamHandler {
 public:
  explicit FrameEcho(std::shared_ptr<Stream> stream) : stream_(std::move(stream)) {}
  void OnMessage(Message message) override {
    auto frame = DecodeFrame(std::move(message));
    ASSERT_TRUE(frame.ok()) << frame.status();
    ReplyHeader reply;
    reply.set_request_id(frame->header.request_id());
    reply.set_last(true);
    std::string payload(frame->payload.remaining(), ' ');
    frame->payload.Copy(&payload[0], payload.size());
    stream_->Send(EncodeReply(reply, {Slice::FromString(std::move(payload))}));
  }
  void OnClosed() override {}

 private:
  const std::shared_ptr<Stream> stream_;
};

TEST(GrpcStreamServerTest, GeneratedStubWorksWithTheRawServer) {
  auto server = StartServer([](std::shared_ptr<Stream> stream, const PeerIdentity&) {
    return std::make_unique<FrameEcho>(std::move(stream));
  });
  auto stub =
      Pserver::NewStub(grpc::CreateChannel(AddressOf(*server), grpc::InsecureChannelCredentials()));
  grpc::ClientContext context;
  auto stream = stub->Exchange(&context);
  for (size_t size : {0u, 1u, 100000u, 3u << 20}) {
    Frame frame;
    frame.set_magic(kFrameMagic);
    frame.mutable_header()->set_request_id(size + 1);
    frame.set_payload(std::string(size, 'p'));
    ASSERT_TRUE(stream->Write(frame));
    ReplyFrame reply;
    ASSERT_TRUE(stream->Read(&reply));
    EXPECT_EQ(reply.magic(), kFrameMagic);
    EXPECT_EQ(reply.header().request_id(), size + 1);
    EXPECT_TRUE(reply.payload() == frame.payload());
  }
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST(GrpcStreamServerTest, GarbageOnThePortDoesNotDisturbStreams) {
  ScriptedServer scripted(Echo);
  auto server = StartServer(scripted.factory());
  GrpcTransport transport;
  RecordingClient client(&transport, AddressOf(*server));
  std::mt19937 random(3);
  const std::string preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  for (int i = 0; i < 20; ++i) {
    std::string garbage = i % 2 == 0 ? preface : "";
    for (int n = 0; n < 2000; ++n) garbage.push_back(static_cast<char>(random()));
    SendBytes(server->port(), garbage);
    client.Send("x");
    ASSERT_TRUE(client.AwaitMessages(i + 1));
  }
}

}  // namespace
}  // namespace sluice
