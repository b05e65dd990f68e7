#include "common/shm_transport/shm_stream_server.h"

#include <dirent.h>
#include <gmock/gmock.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <thread>

#include "common/base/clock.h"
#include "common/base/env.h"
#include "proto/pserver.pb.h"
#include "tests/common/shm_transport/shm_servers.h"

namespace sluice {
namespace {

constexpr absl::Duration kLong = absl::Seconds(10);

PeerIdentity WorkerOfRank(const std::string& rank) {
  PeerIdentity peer;
  peer.verified = true;
  peer.role = PeerRole::kWorker;
  peer.name = rank;
  return peer;
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
  PeerIdentity scheduler = WorkerOfRank("");
  scheduler.role = PeerRole::kScheduler;
  server.SetPeer(scheduler);
  EXPECT_EQ(OpenShmLink(&control, kShmAddress, BootId(), kLong).status().code(),
            absl::StatusCode::kPermissionDenied);
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

TEST(ShmStreamServerTest, StreamsBeyondTheMaximumAreRefusedUntilOneEnds) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  std::atomic<int> others{1};
  ShmStreamServer::Options options;
  options.max_streams = 3;
  options.other_streams = [&] { return others.load(); };
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient first(&transport, kShmAddress);
  ASSERT_TRUE(scripted.AwaitOpened(1));
  RecordingClient second(&transport, kShmAddress);
  ASSERT_TRUE(scripted.AwaitOpened(2));
  EXPECT_EQ(server->open_streams(), 2);
  RecordingClient third(&transport, kShmAddress);
  ASSERT_TRUE(third.AwaitClosed());
  EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted) << third.status();
  first.Destroy();
  ASSERT_TRUE(scripted.AwaitClosed(1));
  while (server->open_streams() > 1) std::this_thread::yield();
  RecordingClient fourth(&transport, kShmAddress);
  fourth.Send("x");
  EXPECT_TRUE(fourth.AwaitMessages(1));
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

TEST(ShmStreamServerTest, ClientThatDoesNotReadIsCutAtTheLimit) {
  InProcessTransport control;
  ScriptedServer scripted([](Stream* stream, const std::string&) {
    const std::string block(1 << 20, 'x');
    for (int i = 0; i < 32; ++i) stream->Send({Slice::FromString(block)});
  });
  ShmStreamServer::Options options;
  options.max_queued_bytes = 8 << 20;
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control));
  // A client whose callback does not return reads nothing more.
  Watched watched;
  bool release = false, closed = false;
  absl::Status end;
  StreamCallbacks stalled;
  stalled.on_message = [&](Message) { watched.Await([&] { return release; }); };
  stalled.on_closed = [&](absl::Status status) {
    watched.Change([&] {
      end = std::move(status);
      closed = true;
    });
  };
  const auto client = transport.Connect(kShmAddress, std::move(stalled));
  client->Send({Slice::FromString("x")});
  ASSERT_TRUE(scripted.AwaitClosed(1));
  EXPECT_EQ(server->queued_bytes(), 0u);
  watched.Change([&] { release = true; });
  ASSERT_TRUE(watched.Await([&] { return closed; }));
  EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted) << end;
}

TEST(ShmStreamServerTest, TheClientWithTheMostQueuedIsCutWhenAllHaveTooMuch) {
  InProcessTransport control;
  // Answers with as many MiB as the request has bytes.
  ScriptedServer scripted([](Stream* stream, const std::string& text) {
    const std::string block(1 << 20, 'x');
    for (size_t i = 0; i < text.size(); ++i) stream->Send({Slice::FromString(block)});
  });
  ShmStreamServer::Options options;
  options.ring_bytes = 1 << 20;
  options.max_total_queued_bytes = 12 << 20;
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control)), other(OptionsWith(&control));
  Watched watched;
  bool release = false, closed = false;
  absl::Status end;
  StreamCallbacks stalled;
  stalled.on_message = [&](Message) { watched.Await([&] { return release; }); };
  stalled.on_closed = [&](absl::Status status) {
    watched.Change([&] {
      end = std::move(status);
      closed = true;
    });
  };
  const auto greedy = other.Connect(kShmAddress, std::move(stalled));
  greedy->Send({Slice::FromString(std::string(12, 'x'))});
  while (server->queued_bytes() < size_t{8} << 20) std::this_thread::yield();
  RecordingClient modest(&transport, kShmAddress);
  modest.Send(std::string(7, 'x'));
  EXPECT_TRUE(modest.AwaitMessages(7)) << "the client that reads is served";
  EXPECT_TRUE(scripted.AwaitClosed(1));
  watched.Change([&] { release = true; });
  EXPECT_TRUE(watched.Await([&] { return closed; }));
  EXPECT_EQ(end.code(), absl::StatusCode::kResourceExhausted) << end;
}

TEST(ShmStreamServerTest, AStreamThatSaysNothingIsEnded) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmStreamServer::Options options;
  options.first_message_timeout = absl::Milliseconds(200);
  ShmTestServer server(&control, scripted.factory(), options);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient talks(&transport, kShmAddress), silent(&transport, kShmAddress);
  talks.Send("x");
  ASSERT_TRUE(talks.AwaitMessages(1));
  ASSERT_TRUE(silent.AwaitClosed());
  EXPECT_EQ(silent.status().code(), absl::StatusCode::kDeadlineExceeded) << silent.status();
  talks.Send("y");
  EXPECT_TRUE(talks.AwaitMessages(2)) << "the timeout is over once a stream has spoken";
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
