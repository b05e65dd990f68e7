#include "common/shm_transport/shm_stream_server.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "common/base/boot_id.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "proto/pserver.pb.h"
#include "tests/common/security/recorded_audit.h"
#include "tests/common/shm_transport/shm_servers.h"
#include "tests/common/transport/recorded_cuts.h"

namespace sluice {
namespace {

constexpr absl::Duration kLong = absl::Seconds(60);

PeerIdentity WorkerOfRank(const std::string& rank) {
  PeerIdentity peer;
  peer.verified = true;
  peer.role = PeerRole::kWorker;
  peer.name = rank;
  return peer;
}

std::shared_ptr<ServedStreams> TableOf(const StreamBounds& bounds, AuditLog* audit) {
  RoomReports::Options reports;
  reports.audit = audit;
  return std::make_shared<ServedStreams>(bounds, reports);
}

int OpenDescriptors() {
  DIR* const folder = opendir("/proc/self/fd");
  int n = 0;
  while (readdir(folder) != nullptr) ++n;
  closedir(folder);
  return n;
}

TEST(ShmStreamServerTest, HandlersGetTheIdentityOfTheInvitation) {
  InProcessTransport control;
  Watched watched;
  std::vector<std::string> names;
  ScriptedServer scripted(Echo);
  ShmTestServer server(&control, [&, make = scripted.factory()](std::shared_ptr<Stream> stream,
                                                                const PeerIdentity& peer) {
    watched.Change([&] { names.push_back(peer.ToString()); });
    return make(std::move(stream), peer);
  });
  ShmTransport transport(OptionsWith(&control));
  for (const char* rank : {"3", "5"}) {
    server.SetPeer(WorkerOfRank(rank));
    RecordingClient client(&transport, kShmAddress);
    client.Send("x");
    ASSERT_TRUE(client.AwaitMessages(1));
  }
  ASSERT_TRUE(watched.Await([&] { return names.size() == 2; }));
  EXPECT_THAT(names, ::testing::ElementsAre("worker 3", "worker 5"));
}

TEST(ShmStreamServerTest, OtherRolesAreRefused) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmTestServer server(&control, scripted.factory());
  PeerIdentity other = WorkerOfRank("");
  for (const PeerRole role : {PeerRole::kScheduler, PeerRole::kPserver, PeerRole::kOperator}) {
    other.role = role;
    server.SetPeer(other);
    EXPECT_EQ(OpenShmLink(&control, kShmAddress, BootId(), kLong).status().code(),
              absl::StatusCode::kPermissionDenied)
        << static_cast<int>(role);
  }
}

TEST(ShmStreamServerTest, OtherHostsAndProtocolsAreNotInvited) {
  ScriptedServer scripted(Echo);
  ShmStreamServer server({}, scripted.factory());
  OpenSharedMemoryRequest request;
  request.set_protocol(kShmProtocol);
  request.set_boot_id(BootId());
  EXPECT_EQ(server.Invite({}, request.SerializeAsString()).status().code(),
            absl::StatusCode::kUnavailable)
      << "before Start";
  ASSERT_TRUE(server.Start().ok());
  EXPECT_TRUE(server.Invite({}, request.SerializeAsString()).ok());
  OpenSharedMemoryRequest other = request;
  other.set_boot_id("another");
  EXPECT_EQ(server.Invite({}, other.SerializeAsString()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  other = request;
  other.set_protocol(2);
  EXPECT_EQ(server.Invite({}, other.SerializeAsString()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(server.Invite({}, "\xff").status().code(), absl::StatusCode::kInvalidArgument);
  server.Shutdown();
  EXPECT_EQ(server.Invite({}, request.SerializeAsString()).status().code(),
            absl::StatusCode::kUnavailable);
}

TEST(ShmStreamServerTest, CallersWithoutAnInvitationAreRefusedAndAudited) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/shm_audit_", getpid());
  AuditLog::Options log;
  log.path = path;
  log.role = "pserver";
  log.clock = Clock::Real();
  log.env = Env::Real();
  auto audit = AuditLog::Open(log);
  ASSERT_TRUE(audit.ok()) << audit.status();
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmStreamServer::Options options;
  options.audit = audit->get();
  ShmTestServer server(&control, scripted.factory(), options);
  // Its token is not the one of the server.
  control.RegisterUnary(kShmAddress, kOpenSharedMemoryMethod,
                        [&](const std::string& request) -> absl::StatusOr<std::string> {
                          OpenSharedMemoryReply reply;
                          EXPECT_TRUE(reply.ParseFromString(*server->Invite({}, request)));
                          reply.set_token(std::string(16, 'x'));
                          return reply.SerializeAsString();
                        });
  EXPECT_EQ(OpenShmLink(&control, kShmAddress, BootId(), kLong).status().code(),
            absl::StatusCode::kPermissionDenied);
  const std::pair<std::string, std::string> key = {kExchangeMethod, "token"};
  EXPECT_EQ((*audit)->counts().refusals[key], 1u);
  server.Stop();
  unlink(path.c_str());
}

// Makes the server's socket known, and says hello there with a token and a descriptor.
class BadHello {
 public:
  BadHello(InProcessTransport* control, ShmHello hello) {
    OpenSharedMemoryRequest request;
    request.set_protocol(kShmProtocol);
    request.set_boot_id(BootId());
    OpenSharedMemoryReply reply;
    EXPECT_TRUE(reply.ParseFromString(
        control->Call(kShmAddress, kOpenSharedMemoryMethod, request.SerializeAsString(), kLong)
            .value()));
    socket_ = UnixConnection::Connect(reply.socket()).value();
    if (hello.ring_bytes == 0) hello.ring_bytes = reply.ring_bytes();
    std::string bytes(reinterpret_cast<const char*>(&hello), sizeof(hello));
    EXPECT_TRUE(socket_.Send(bytes + reply.token()).ok());
  }
  // The server has answered.
  bool AwaitAnswer() { return socket_.Receive(kLong).ok(); }

 private:
  UnixConnection socket_;
};

TEST(ShmStreamServerTest, AHelloThatBringsNoUsableMemoryIsRecordedWithItsCaller) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  RecordedAudit audit("pserver");
  ShmStreamServer::Options options;
  options.audit = audit.log();
  ShmTestServer server(&control, scripted.factory(), options);
  PeerIdentity peer = WorkerOfRank("3");
  peer.address = "127.0.0.1:1000";
  server.SetPeer(peer);
  EXPECT_TRUE(BadHello(&control, ShmHello()).AwaitAnswer()) << "it has no descriptor";
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "invalid"), 1u);
  ShmHello other;
  other.ring_bytes = 4096;
  EXPECT_TRUE(BadHello(&control, other).AwaitAnswer());
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "invalid"), 2u);
  EXPECT_THAT(audit.Text(), testing::HasSubstr("\"reason\": \"invalid\", \"role\": \"worker\", "
                                               "\"name\": \"3\", \"address\": "
                                               "\"127.0.0.1:1000\""));
}

TEST(ShmStreamServerTest, AClientThatBreaksTheRulesOfTheRingIsRecordedOnce) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  RecordedAudit audit("pserver");
  ShmStreamServer::Options options;
  options.audit = audit.log();
  ShmTestServer server(&control, scripted.factory(), options);
  absl::StatusOr<ShmLink> link = OpenShmLink(&control, kShmAddress, BootId(), kLong);
  ASSERT_TRUE(link.ok()) << link.status();
  link->control(true)->written.store(2 * link->ring_bytes);
  send(link->socket.fd(), "w", 1, MSG_NOSIGNAL);
  ASSERT_TRUE(scripted.AwaitClosed(1));
  while (server->open_streams() > 0) std::this_thread::yield();
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "invalid"), 1u);
}

TEST(ShmStreamServerTest, StreamsBeyondTheMaximumAreRefusedUntilOneEnds) {
  InProcessTransport control;
  ScriptedServer scripted(Echo), fallback(Echo);
  control.Bind(kShmAddress, fallback.factory());
  RecordedAudit audit("pserver");
  StreamBounds bounds;
  bounds.max_streams = 2;
  ShmStreamServer::Options options;
  options.streams = TableOf(bounds, audit.log());
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport::Options client_options = OptionsWith(&control);
  client_options.fallback = &control;
  ShmTransport transport(client_options);
  RecordingClient first(&transport, kShmAddress), second(&transport, kShmAddress);
  for (RecordingClient* client : {&first, &second}) {
    client->Send("x");
    ASSERT_TRUE(client->AwaitMessages(1));
  }
  EXPECT_EQ(server->open_streams(), 2);
  RecordingClient third(&transport, kShmAddress);
  third.Send("x");
  EXPECT_TRUE(third.AwaitMessageOrEnd(1)) << "not served by the fallback: " << third.status();
  EXPECT_TRUE(fallback.AwaitOpened(1));
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 1u);
  first.Destroy();
  ASSERT_TRUE(scripted.AwaitClosed(1));
  while (server->open_streams() > 1) std::this_thread::yield();
  RecordingClient fourth(&transport, kShmAddress);
  fourth.Send("x");
  EXPECT_TRUE(fourth.AwaitMessageOrEnd(1));
  EXPECT_EQ(transport.open_streams(), 2);
}

TEST(ShmStreamServerTest, SilentStreamsOfAPeerMakeRoomForOnesThatSpeak) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  RecordedAudit audit("pserver");
  StreamBounds bounds;
  bounds.max_streams = 8;
  bounds.max_silent_streams_per_peer = 3;
  ShmStreamServer::Options options;
  options.streams = TableOf(bounds, audit.log());
  ShmTestServer server(&control, scripted.factory(), options);
  PeerIdentity flooding = WorkerOfRank("");
  flooding.address = "127.0.0.1:1000";
  server.SetPeer(flooding);
  std::vector<ShmLink> silent;
  for (int i = 0; i < 12; ++i) {
    absl::StatusOr<ShmLink> link = OpenShmLink(&control, kShmAddress, BootId(), kLong);
    ASSERT_TRUE(link.ok()) << link.status();
    silent.push_back(*std::move(link));
  }
  EXPECT_TRUE(scripted.AwaitClosed(9)) << "the oldest ones are given up";
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 9u);
  // With the same certificate, over a connection of its own.
  PeerIdentity honest = flooding;
  honest.address = "127.0.0.1:2000";
  server.SetPeer(honest);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient client(&transport, kShmAddress);
  client.Send("x");
  EXPECT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
}

TEST(ShmStreamServerTest, TooLongMessageEndsOnlyItsStream) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmStreamServer::Options options;
  options.max_message_bytes = 100000;
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient modest(&transport, kShmAddress), greedy(&transport, kShmAddress);
  greedy.Send(std::string(100001, 'x'));
  ASSERT_TRUE(greedy.AwaitClosed());
  EXPECT_EQ(greedy.status().code(), absl::StatusCode::kResourceExhausted) << greedy.status();
  modest.Send(std::string(100000, 'x'));
  EXPECT_TRUE(modest.AwaitMessages(1));
}

// Answers with as many MiB as the request has bytes: in one message if it is all of '1', else in
// one for each byte.
void Blocks(Stream* stream, const std::string& text) {
  if (text[0] == '1') return stream->Send({Slice::FromString(std::string(text.size() << 20, 'x'))});
  const std::string block(1 << 20, 'x');
  for (size_t i = 0; i < text.size(); ++i) stream->Send({Slice::FromString(block)});
}

TEST(ShmStreamServerTest, ClientThatDoesNotReadIsCutAtTheLimitAndReported) {
  InProcessTransport control;
  ScriptedServer scripted(Blocks);
  StreamBounds bounds;
  bounds.max_queued_bytes = 8 << 20;
  RecordedAudit audit("pserver");
  RecordedCuts cuts(audit.log());
  ShmStreamServer::Options options;
  options.streams = std::make_shared<ServedStreams>(bounds, cuts.reports());
  ShmTestServer server(&control, scripted.factory(), options);
  PeerIdentity peer = WorkerOfRank("3");
  peer.address = "127.0.0.1:1000";
  server.SetPeer(peer);
  ShmTransport transport(OptionsWith(&control));
  StalledClient client(&transport, kShmAddress);
  client.stream()->Send({Slice::FromString(std::string(32, 'x'))});
  ASSERT_TRUE(scripted.AwaitClosed(1));
  EXPECT_EQ(server->queued_bytes(), 0u);
  client.Release();
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kResourceExhausted) << client.status();
  ASSERT_EQ(cuts.all().size(), 1u);
  EXPECT_EQ(cuts.all()[0].first, "127.0.0.1:1000");
  EXPECT_EQ(cuts.all()[0].second.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 1u);
}

// All streams together may have 12 MiB of answers that wait.
ShmStreamServer::Options OptionsWithSmallBudget(RecordedCuts* cuts) {
  StreamBounds bounds;
  bounds.max_total_queued_bytes = 12 << 20;
  ShmStreamServer::Options options;
  options.ring_bytes = 1 << 20;
  options.streams = std::make_shared<ServedStreams>(bounds, cuts->reports());
  return options;
}

// Sends again if the client has read the answer before the server looked at what was queued.
void SendUntilOneIsCut(RecordingClient* modest, const std::string& request, RecordedCuts* cuts) {
  for (int sent = 1; sent <= 100 && cuts->all().empty(); ++sent) {
    modest->Send(request);
    ASSERT_TRUE(modest->AwaitMessageOrEnd(sent))
        << "cut in the place of the other: " << modest->status();
  }
}

TEST(ShmStreamServerTest, TheClientWithTheMostQueuedIsCutWhenAllHaveTooMuch) {
  InProcessTransport control;
  ScriptedServer scripted(Blocks);
  RecordedCuts cuts;
  ShmTestServer server(&control, scripted.factory(), OptionsWithSmallBudget(&cuts));
  ShmTransport transport(OptionsWith(&control)), other(OptionsWith(&control));
  StalledClient greedy(&other, kShmAddress);
  greedy.stream()->Send({Slice::FromString(std::string(12, 'x'))});
  while (server->queued_bytes() < size_t{8} << 20) std::this_thread::yield();
  RecordingClient modest(&transport, kShmAddress);
  SendUntilOneIsCut(&modest, std::string(7, '1'), &cuts);
  EXPECT_TRUE(scripted.AwaitClosed(1));
  EXPECT_EQ(cuts.all().size(), 1u);
  greedy.Release();
  EXPECT_TRUE(greedy.AwaitClosed());
  EXPECT_EQ(greedy.status().code(), absl::StatusCode::kResourceExhausted) << greedy.status();
}

TEST(ShmStreamServerTest, AStreamThatSaysNothingIsEnded) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmStreamServer::Options options;
  options.first_message_timeout = absl::Seconds(1);
  RecordedAudit audit("pserver");
  options.audit = audit.log();
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient talks(&transport, kShmAddress);
  talks.Send("x");
  ASSERT_TRUE(talks.AwaitMessages(1));
  RecordingClient silent(&transport, kShmAddress);
  ASSERT_TRUE(silent.AwaitClosed());
  EXPECT_EQ(silent.status().code(), absl::StatusCode::kDeadlineExceeded) << silent.status();
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 1u);
  talks.Send("y");
  EXPECT_TRUE(talks.AwaitMessages(2)) << "the timeout is over once a stream has spoken";
}

TEST(ShmStreamServerTest, AClosedStreamWhoseClientDoesNotReadEnds) {
  InProcessTransport control;
  ScriptedServer scripted(Blocks);
  ShmStreamServer::Options options;
  options.close_timeout = absl::Milliseconds(300);
  RecordedAudit audit("pserver");
  options.audit = audit.log();
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control));
  StalledClient client(&transport, kShmAddress);
  client.stream()->Send({Slice::FromString(std::string(64, 'x'))});
  client.stream()->Close();
  ASSERT_TRUE(scripted.AwaitClosed(1));
  const absl::Time deadline = Clock::Real()->Now() + kLong;
  while (server->open_streams() > 0 && Clock::Real()->Now() < deadline) std::this_thread::yield();
  EXPECT_EQ(server->open_streams(), 0);
  EXPECT_EQ(server->queued_bytes(), 0u);
  EXPECT_EQ(audit.Refusals(kExchangeMethod, "room"), 1u);
}

TEST(ShmStreamServerTest, AClosedStreamWithTheMostQueuedIsCutBeforeHonestOnes) {
  InProcessTransport control;
  ScriptedServer scripted(Blocks);
  RecordedCuts cuts;
  ShmTestServer server(&control, scripted.factory(), OptionsWithSmallBudget(&cuts));
  ShmTransport transport(OptionsWith(&control)), other(OptionsWith(&control));
  StalledClient greedy(&other, kShmAddress);
  greedy.stream()->Send({Slice::FromString(std::string(12, 'x'))});
  while (server->queued_bytes() < size_t{8} << 20) std::this_thread::yield();
  greedy.stream()->Close();
  ASSERT_TRUE(scripted.AwaitClosed(1));
  RecordingClient modest(&transport, kShmAddress);
  SendUntilOneIsCut(&modest, std::string(8, '1'), &cuts);
  EXPECT_EQ(cuts.all().size(), 1u);
}

TEST(ShmStreamServerTest, UnfinishedMessagesOfAllStreamsAreBounded) {
  constexpr size_t kMiB = 1 << 20;
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  StreamBounds bounds;
  bounds.max_total_incoming_bytes = 4 * kMiB;
  RecordedCuts cuts;
  const auto table = std::make_shared<ServedStreams>(bounds, cuts.reports());
  ShmStreamServer::Options options;
  options.streams = table;
  options.ring_bytes = kMiB;  // a message of half of it would wait there and take no memory
  ShmTestServer server(&control, scripted.factory(), options);
  // Each sends half of a message of 1 MiB, for which the server takes memory.
  std::vector<ShmLink> hostile;
  for (int i = 0; i < 12; ++i) {
    absl::StatusOr<ShmLink> link = OpenShmLink(&control, kShmAddress, BootId(), kLong);
    ASSERT_TRUE(link.ok()) << link.status();
    RingWriter writer(link->control(true), link->data(true), link->ring_bytes);
    FrameHead head;
    head.kind = FrameHead::kMessage;
    head.bytes = kMiB;
    writer.Write(reinterpret_cast<const uint8_t*>(&head), sizeof(head));
    const std::string half(kMiB / 2, 'x');
    writer.Write(reinterpret_cast<const uint8_t*>(half.data()), half.size());
    writer.Publish();
    link->socket.Send("w").IgnoreError();
    hostile.push_back(*std::move(link));
    EXPECT_LE(table->incoming()->bytes(), 4 * kMiB);
  }
  EXPECT_TRUE(scripted.AwaitClosed(8)) << "there is room for four";
  ShmTransport transport(OptionsWith(&control));
  RecordingClient honest(&transport, kShmAddress);
  honest.Send(std::string(3 * kMiB / 4, 'x'));  // less than each of the others holds
  EXPECT_TRUE(honest.AwaitMessageOrEnd(1)) << honest.status();
  EXPECT_LE(table->incoming()->bytes(), 4 * kMiB);
  EXPECT_GE(cuts.all().size(), 8u);
  for (const auto& [address, why] : cuts.all()) {
    EXPECT_EQ(why.code(), absl::StatusCode::kResourceExhausted) << why;
    EXPECT_FALSE(address.empty());
  }
  hostile.clear();
  honest.Destroy();
  while (server->open_streams() > 0) std::this_thread::yield();
  EXPECT_EQ(table->incoming()->bytes(), 0u);
}

TEST(ShmStreamServerTest, ALongMessageBeforeAShortFirstOneEndsTheStream) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmStreamServer::Options options;
  options.max_first_message_bytes = 1000;
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient greedy(&transport, kShmAddress), modest(&transport, kShmAddress);
  greedy.Send(std::string(1001, 'x'));
  ASSERT_TRUE(greedy.AwaitClosed());
  EXPECT_EQ(greedy.status().code(), absl::StatusCode::kResourceExhausted) << greedy.status();
  modest.Send(std::string(1000, 'x'));
  modest.Send(std::string(1001, 'x'));
  EXPECT_TRUE(modest.AwaitMessageOrEnd(2)) << modest.status();
}

OpenSharedMemoryReply InvitationTo(ShmTestServer* server) {
  OpenSharedMemoryRequest request;
  request.set_protocol(kShmProtocol);
  request.set_boot_id(BootId());
  OpenSharedMemoryReply reply;
  EXPECT_TRUE(reply.ParseFromString(*(*server)->Invite({}, request.SerializeAsString())));
  return reply;
}

// A connection that has said hello, and waits for the answer.
UnixConnection SayHello(const OpenSharedMemoryReply& invitation) {
  UnixConnection socket = *UnixConnection::Connect(invitation.socket());
  const SealedMemory memory =
      *SealedMemory::Create("test", ShmLink::MemoryBytes(invitation.ring_bytes()));
  ShmHello hello;
  hello.ring_bytes = invitation.ring_bytes();
  const std::string packet(reinterpret_cast<const char*>(&hello), sizeof(hello));
  EXPECT_TRUE(socket.Send(packet + invitation.token(), {memory.fd()}).ok());
  return socket;
}

TEST(ShmStreamServerTest, ACallerThatHasSaidHelloIsHeardBeforeThoseBehindItReplaceIt) {
  InProcessTransport control;
  Watched watched;
  bool entered = false, release = false;
  ScriptedServer scripted(Echo);
  // The first stream holds up whoever accepts connections, so that others wait in the queue.
  ShmTestServer server(&control, [&, make = scripted.factory()](std::shared_ptr<Stream> stream,
                                                                const PeerIdentity& peer) {
    watched.Change([&] { entered = true; });
    watched.Await([&] { return release; });
    return make(std::move(stream), peer);
  });
  const UnixConnection first = SayHello(InvitationTo(&server));
  ASSERT_TRUE(watched.Await([&] { return entered; }));
  UnixConnection honest = SayHello(InvitationTo(&server));
  const std::string name = InvitationTo(&server).socket();
  std::vector<UnixConnection> silent;
  for (int i = 0; i < 100; ++i) {
    absl::StatusOr<UnixConnection> socket = UnixConnection::Connect(name);
    ASSERT_TRUE(socket.ok()) << socket.status();
    silent.push_back(*std::move(socket));
  }
  watched.Change([&] { release = true; });
  const auto answer = honest.Receive(kLong);
  ASSERT_TRUE(answer.ok()) << "it is dropped unheard: " << answer.status();
  EXPECT_EQ(answer->bytes, "k");
}

TEST(ShmStreamServerTest, SilentConnectionsMakeRoomForCallersThatSayHello) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  RecordedAudit audit("pserver");
  ShmStreamServer::Options options;
  options.audit = audit.log();
  ShmTestServer server(&control, scripted.factory(), options);
  const std::string name = InvitationTo(&server).socket();
  std::vector<UnixConnection> silent;
  for (int i = 0; i < 100; ++i) {
    absl::StatusOr<UnixConnection> socket = UnixConnection::Connect(name);
    ASSERT_TRUE(socket.ok()) << socket.status();
    silent.push_back(*std::move(socket));
  }
  EXPECT_EQ(silent[0].Receive(kLong).status().code(), absl::StatusCode::kUnavailable)
      << "the oldest is dropped";
  EXPECT_GE(audit.Refusals(kExchangeMethod, "room"), 1u);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient client(&transport, kShmAddress);
  client.Send("x");
  EXPECT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
}

TEST(ShmStreamServerTest, ADroppedConnectionThatNeverSaidHelloHurtsNobody) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmTestServer server(&control, scripted.factory());
  OpenSharedMemoryRequest request;
  request.set_protocol(kShmProtocol);
  request.set_boot_id(BootId());
  OpenSharedMemoryReply reply;
  ASSERT_TRUE(reply.ParseFromString(*server->Invite({}, request.SerializeAsString())));
  std::vector<UnixConnection> silent;
  for (int i = 0; i < 10; ++i) silent.push_back(*UnixConnection::Connect(reply.socket()));
  ASSERT_TRUE(silent.back().Send("garbage").ok());
  const auto answer = silent.back().Receive(kLong);
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(answer->bytes[0], 'e');
  silent.resize(5);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient client(&transport, kShmAddress);
  client.Send("x");
  EXPECT_TRUE(client.AwaitMessages(1));
}

TEST(ShmStreamServerTest, AClientThatIsKilledLeavesNothingBehind) {
  InProcessTransport control;
  ScriptedServer scripted([](Stream*, const std::string&) {});
  ShmTestServer server(&control, scripted.factory());
  std::shared_ptr<Stream> held;
  const int before = OpenDescriptors();
  for (int life = 1; life <= 3; ++life) {
    absl::StatusOr<ShmLink> link = OpenShmLink(&control, kShmAddress, BootId(), kLong);
    ASSERT_TRUE(link.ok()) << link.status();
    ASSERT_TRUE(scripted.AwaitOpened(life));
    const pid_t child = fork();
    if (child == 0) {
      // In the middle of a message.
      RingWriter writer(link->control(true), link->data(true), link->ring_bytes);
      FrameHead head;
      head.kind = FrameHead::kMessage;
      head.bytes = 1 << 20;
      writer.Write(reinterpret_cast<const uint8_t*>(&head), sizeof(head));
      writer.Publish();
      raise(SIGKILL);
    }
    *link = ShmLink();  // the child has it alone
    waitpid(child, nullptr, 0);
    ASSERT_TRUE(scripted.AwaitClosed(life));
    held = scripted.TakeLastStream();  // as a request that waits does
  }
  while (server->open_streams() > 0) std::this_thread::yield();
  EXPECT_EQ(OpenDescriptors(), before);
  std::ifstream maps("/proc/self/maps");
  const std::string all((std::istreambuf_iterator<char>(maps)), std::istreambuf_iterator<char>());
  EXPECT_EQ(all.find("sluice-stream"), std::string::npos) << "the memory is still mapped";
  held->Send({Slice::FromString("too late")});
  EXPECT_EQ(server->queued_bytes(), 0u);
}

}  // namespace
}  // namespace sluice
