#include "common/shm_transport/shm_transport.h"

#include <gmock/gmock.h>

#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "tests/common/shm_transport/shm_servers.h"
#include "tests/common/transport/stream_conformance.h"

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// `ring_bytes`: small rings make every message wait for room.
class ShmHarness : public TransportHarness {
 public:
  explicit ShmHarness(size_t ring_bytes) : transport_(OptionsWith(&control_)) {
    options_.ring_bytes = ring_bytes;
  }
  Transport* transport() override { return &transport_; }
  std::string Start(StreamHandlerFactory factory, Unary unary) override {
    server_ = std::make_unique<ShmTestServer>(&control_, std::move(factory), options_);
    if (unary != nullptr)
      control_.RegisterUnary(kShmAddress, "/sluice.Pserver/SaveShards", std::move(unary));
    return kShmAddress;
  }
  void Kill() override { server_->Stop(); }
  std::string AddressOfNobody() override { return "nobody"; }

 private:
  ShmStreamServer::Options options_;
  InProcessTransport control_;
  std::unique_ptr<ShmTestServer> server_;
  ShmTransport transport_;
};

INSTANTIATE_TEST_SUITE_P(LargeRings, StreamConformanceTest,
                         ::testing::Values([] { return std::make_unique<ShmHarness>(1 << 20); }));
INSTANTIATE_TEST_SUITE_P(SmallRings, StreamConformanceTest,
                         ::testing::Values([] { return std::make_unique<ShmHarness>(16384); }));

// A harness whose servers cannot share memory: all streams take the fallback.
class FallbackHarness : public TransportHarness {
 public:
  FallbackHarness() {
    ShmTransport::Options options = OptionsWith(&control_);
    options.fallback = &control_;
    transport_ = std::make_unique<ShmTransport>(options);
  }
  Transport* transport() override { return transport_.get(); }
  std::string Start(StreamHandlerFactory factory, Unary unary) override {
    control_.Bind(kShmAddress, std::move(factory));
    if (unary != nullptr)
      control_.RegisterUnary(kShmAddress, "/sluice.Pserver/SaveShards", std::move(unary));
    return kShmAddress;
  }
  void Kill() override { control_.Unbind(kShmAddress); }
  std::string AddressOfNobody() override { return "nobody"; }

 private:
  InProcessTransport control_;
  std::unique_ptr<ShmTransport> transport_;
};

INSTANTIATE_TEST_SUITE_P(Fallback, StreamConformanceTest,
                         ::testing::Values([] { return std::make_unique<FallbackHarness>(); }));

// Why streams took the fallback.
struct Said {
  std::function<void(const std::string&, const absl::Status&)> Listener() {
    return [this](const std::string& address, const absl::Status& why) {
      watched.Change([&] {
        addresses.push_back(address);
        reasons.push_back(why);
      });
    };
  }
  Watched watched;
  std::vector<std::string> addresses;
  std::vector<absl::Status> reasons;
};

TEST(ShmTransportTest, AnotherHostIsServedByTheFallbackAndSaidOnce) {
  InProcessTransport control;
  ScriptedServer shared(Echo), other(Echo);
  ShmStreamServer::Options server_options;
  server_options.boot_id = "another boot";
  ShmTestServer server(&control, shared.factory(), server_options);
  control.Bind(kShmAddress, other.factory());
  Said said;
  ShmTransport::Options options = OptionsWith(&control);
  options.fallback = &control;
  options.on_choice = said.Listener();
  ShmTransport transport(options);
  for (int i = 0; i < 3; ++i) {
    RecordingClient client(&transport, kShmAddress);
    client.Send("x");
    ASSERT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
    client.Destroy();
  }
  EXPECT_THAT(said.addresses, ElementsAre(kShmAddress));
  ASSERT_EQ(said.reasons.size(), 1u);
  EXPECT_EQ(said.reasons[0].code(), absl::StatusCode::kFailedPrecondition) << said.reasons[0];
  EXPECT_EQ(transport.open_streams(), 0);
  control.Unbind(kShmAddress);
}

// Each life of a server has a socket of another name, which the messages hold.
TEST(ShmTransportTest, AReasonIsSaidOnceHoweverItsTextChanges) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  control.Bind(kShmAddress, scripted.factory());
  std::atomic<int> calls{0};
  control.RegisterUnary(
      kShmAddress, kOpenSharedMemoryMethod, [&](const std::string&) -> absl::StatusOr<std::string> {
        const int call = ++calls;
        const std::string text = absl::StrCat("nobody listens at socket-", call);
        return call < 10 ? absl::FailedPreconditionError(text) : absl::PermissionDeniedError(text);
      });
  Said said;
  ShmTransport::Options options = OptionsWith(&control);
  options.fallback = &control;
  options.on_choice = said.Listener();
  ShmTransport transport(options);
  while (calls < 12) {
    RecordingClient client(&transport, kShmAddress);
    client.Send("x");
    ASSERT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
    client.Destroy();
  }
  ASSERT_EQ(said.reasons.size(), 2u);
  EXPECT_EQ(said.reasons[0].code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(said.reasons[1].code(), absl::StatusCode::kPermissionDenied);
  control.Unbind(kShmAddress);
}

TEST(ShmTransportTest, WithoutAFallbackTheStreamEndsWithTheReason) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmStreamServer::Options server_options;
  server_options.boot_id = "another boot";
  ShmTestServer server(&control, scripted.factory(), server_options);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient client(&transport, kShmAddress);
  client.Send("x");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnimplemented) << client.status();
  EXPECT_THAT(std::string(client.status().message()),
              AllOf(HasSubstr("different hosts"), HasSubstr("--transport=auto")));
}

// Without a fallback, as with --transport=shm.
TEST(ShmTransportTest, RefusalsThatMayPassAreWorthAnotherTryForAWhile) {
  for (const auto code : {absl::StatusCode::kAborted, absl::StatusCode::kPermissionDenied,
                          absl::StatusCode::kResourceExhausted}) {
    SCOPED_TRACE(absl::StatusCodeToString(code));
    InProcessTransport control;
    control.RegisterUnary(kShmAddress, kOpenSharedMemoryMethod,
                          [&](const std::string&) -> absl::StatusOr<std::string> {
                            return absl::Status(code, "not now");
                          });
    ShmTransport::Options options = OptionsWith(&control);
    options.refusals_may_last = absl::Milliseconds(100);
    ShmTransport transport(options);
    const auto status = [&] {
      RecordingClient client(&transport, kShmAddress);
      EXPECT_TRUE(client.AwaitClosed());
      return client.status();
    };
    absl::Status last = status();
    EXPECT_EQ(last.code(), absl::StatusCode::kUnavailable) << last;
    const absl::Time deadline = Clock::Real()->Now() + absl::Seconds(20);
    while (absl::IsUnavailable(last) && Clock::Real()->Now() < deadline) last = status();
    EXPECT_EQ(last.code(), absl::StatusCode::kUnimplemented) << last;
    EXPECT_THAT(std::string(last.message()), HasSubstr("not now"));
  }
}

TEST(ShmTransportTest, ASuccessEndsTheTimeOfRefusals) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmTestServer server(&control, scripted.factory());
  std::atomic<bool> refuse{true};
  control.RegisterUnary(kShmAddress, kOpenSharedMemoryMethod,
                        [&](const std::string& request) -> absl::StatusOr<std::string> {
                          if (refuse) return absl::ResourceExhaustedError("not now");
                          return server->Invite({}, request);
                        });
  ShmTransport::Options options = OptionsWith(&control);
  options.refusals_may_last = absl::Milliseconds(200);
  ShmTransport transport(options);
  for (const absl::Time end = Clock::Real()->Now() + 3 * options.refusals_may_last;
       Clock::Real()->Now() < end;) {
    refuse = true;
    RecordingClient refused(&transport, kShmAddress);
    ASSERT_TRUE(refused.AwaitClosed());
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kUnavailable) << refused.status();
    refuse = false;
    RecordingClient client(&transport, kShmAddress);
    client.Send("x");
    ASSERT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
  }
}

TEST(ShmTransportTest, ASocketThatIsNotThereIsServedByTheFallback) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  control.Bind(kShmAddress, scripted.factory());
  // As from another network namespace: the name that the server gives does not exist here.
  ScriptedServer unused(Echo);
  ShmStreamServer there({}, unused.factory());
  ASSERT_TRUE(there.Start().ok());
  std::atomic<int> calls{0};
  control.RegisterUnary(kShmAddress, kOpenSharedMemoryMethod,
                        [&](const std::string& request) -> absl::StatusOr<std::string> {
                          ++calls;
                          auto reply = there.Invite({}, request);
                          // The name of the socket comes first in the serialized reply.
                          if (reply.ok()) (*reply)[10] ^= 1;
                          return reply;
                        });
  Said said;
  ShmTransport::Options options = OptionsWith(&control);
  options.fallback = &control;
  options.on_choice = said.Listener();
  ShmTransport transport(options);
  RecordingClient client(&transport, kShmAddress);
  client.Send("x");
  ASSERT_TRUE(client.AwaitMessageOrEnd(1)) << client.status();
  client.Destroy();
  ASSERT_EQ(said.reasons.size(), 1u);
  EXPECT_EQ(said.reasons[0].code(), absl::StatusCode::kNotFound) << said.reasons[0];
  EXPECT_EQ(calls, 2) << "the server may have died between its answer and the connection";
  control.Unbind(kShmAddress);
}

TEST(ShmTransportTest, QueueBeyondTheLimitEndsTheStream) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmTestServer server(&control, scripted.factory());
  ShmTransport::Options options = OptionsWith(&control);
  options.max_queued_bytes = 1000;
  ShmTransport transport(options);
  RecordingClient client(&transport, kShmAddress);
  client.Send(std::string(1001, 'x'));
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kResourceExhausted) << client.status();
  client.Destroy();
  EXPECT_EQ(transport.queued_bytes(), 0u);
  RecordingClient open(&transport, kShmAddress);
  open.Send("x");
  ASSERT_TRUE(open.AwaitMessages(1));
  open.Send(std::string(1001, 'x'));
  ASSERT_TRUE(open.AwaitClosed());
  EXPECT_EQ(open.status().code(), absl::StatusCode::kResourceExhausted) << open.status();
}

TEST(ShmTransportTest, QueuedBytesAreCountedUntilTheyAreInTheRing) {
  InProcessTransport control;
  Watched watched;
  bool release = false;
  ScriptedServer scripted(
      [&](Stream*, const std::string&) { watched.Await([&] { return release; }); });
  ShmStreamServer::Options server_options;
  server_options.ring_bytes = 4096;
  ShmTestServer server(&control, scripted.factory(), server_options);
  ShmTransport transport(OptionsWith(&control));
  RecordingClient client(&transport, kShmAddress);
  client.Send("first");
  ASSERT_TRUE(scripted.AwaitOpened(1));
  client.Send(std::string(100000, 'x'));
  while (transport.queued_bytes() != 100000) std::this_thread::yield();
  watched.Change([&] { release = true; });
  ASSERT_TRUE(scripted.AwaitMessages(2));
  EXPECT_EQ(transport.queued_bytes(), 0u);
}

TEST(ShmTransportTest, AStreamThatIsDroppedWhileItConnectsIsCancelledAtOnce) {
  InProcessTransport control;
  Watched watched;
  bool called = false, release = false;
  control.RegisterUnary(kShmAddress, kOpenSharedMemoryMethod,
                        [&](const std::string&) -> absl::StatusOr<std::string> {
                          watched.Change([&] { called = true; });
                          watched.Await([&] { return release; });
                          return absl::UnavailableError("too late");
                        });
  ShmTransport transport(OptionsWith(&control));
  RecordingClient client(&transport, kShmAddress);
  ASSERT_TRUE(watched.Await([&] { return called; }));
  client.Destroy();
  EXPECT_EQ(client.status().code(), absl::StatusCode::kCancelled) << client.status();
  watched.Change([&] { release = true; });
}

TEST(ShmTransportTest, ConnectsToTheSuccessorOfAStoppedServer) {
  InProcessTransport control;
  ScriptedServer scripted(Echo);
  ShmTransport transport(OptionsWith(&control));
  for (int life = 0; life < 2; ++life) {
    ShmTestServer server(&control, scripted.factory());
    RecordingClient client(&transport, kShmAddress);
    client.Send("x");
    ASSERT_TRUE(client.AwaitMessages(1));
    EXPECT_EQ(transport.open_streams(), 1);
    server.Stop();
    ASSERT_TRUE(client.AwaitClosed());
    EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable) << client.status();
  }
}

}  // namespace
}  // namespace sluice
