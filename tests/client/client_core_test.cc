// Checks the core by itself. The test plays both pservers, message by message, and time stands
// still: the core's thread opens streams and fetches routes only when it must.
#include "client/client_core.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include "tests/client/scripted_transport.h"
#include "tests/client/two_tables.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

class ClientCoreTest : public ::testing::Test {
 protected:
  ParameterClientOptions Options() {
    ParameterClientOptions options;
    options.job_id = "job-1";
    options.tables = TwoTables();
    options.route = TwoPservers();
    options.transport = &transport_;
    options.clock = &clock_;
    return options;
  }
  // Makes a core that has sent its hellos: stream 0 goes to "a", stream 1 to "b".
  std::unique_ptr<ClientCore> Connect(ParameterClientOptions options) {
    auto core = ClientCore::Create(std::move(options));
    EXPECT_TRUE(core.ok()) << core.status();
    for (size_t stream = 0; stream < 2; ++stream) {
      EXPECT_TRUE(transport_.Await(stream).header.has_hello());
    }
    return *std::move(core);
  }
  // Makes a core whose hellos were accepted.
  std::unique_ptr<ClientCore> Open(ParameterClientOptions options) {
    auto core = Connect(std::move(options));
    for (size_t stream = 0; stream < 2; ++stream) transport_.Reply(stream, 0);
    return core;
  }
  // Waits for message `number` and the next one, which go to different streams. Returns them by
  // stream.
  std::map<size_t, FrameHeader> AwaitBoth(size_t number) {
    std::map<size_t, FrameHeader> by_stream;
    for (const size_t i : {number, number + 1}) {
      const ScriptedTransport::Sent sent = transport_.Await(i);
      by_stream[sent.stream] = sent.header;
    }
    EXPECT_EQ(by_stream.size(), 2u);
    return by_stream;
  }
  static PushFrame Frame() {
    PushFrame frame;
    frame.parts.resize(kFlatShards);
    return frame;
  }
  // A pull of no rows of the shard, so the reply needs no values.
  static std::shared_ptr<PullOperation> Pull(const ClientCore& core, uint32_t flat) {
    auto op = std::make_shared<PullOperation>(&core.index(), PullOperation::Purpose());
    PullOperation::Piece piece;
    piece.flat = flat;
    EXPECT_TRUE(op->Add(std::move(piece)).ok());
    return op;
  }

  FakeClock clock_;
  ScriptedTransport transport_;
};

TEST_F(ClientCoreTest, CreateNeedsATransportAClockAndARouteOfItsTables) {
  ParameterClientOptions transport = Options(), clock = Options(), route = Options();
  transport.transport = nullptr;
  EXPECT_TRUE(absl::IsInvalidArgument(ClientCore::Create(transport).status()));
  clock.clock = nullptr;
  EXPECT_TRUE(absl::IsInvalidArgument(ClientCore::Create(clock).status()));
  route.route.mutable_tables()->RemoveLast();
  EXPECT_TRUE(absl::IsInternal(ClientCore::Create(route).status()));
  EXPECT_EQ(transport_.streams(), 0u);
}

TEST_F(ClientCoreTest, ATicketIsWaitedForOnce) {
  const auto core = Open(Options());
  EXPECT_TRUE(absl::IsInvalidArgument(core->Wait(99)));
  const ClientCore::Ticket failed = core->Start(absl::DataLossError("not started"));
  EXPECT_TRUE(absl::IsDataLoss(core->Wait(failed)));
  EXPECT_TRUE(absl::IsInvalidArgument(core->Wait(failed)));
  const ClientCore::Ticket pull = core->Start(Pull(*core, 0));
  const ScriptedTransport::Sent request = transport_.Await(2);
  ASSERT_TRUE(request.header.has_pull());
  EXPECT_EQ(request.address, "a");
  transport_.Reply(request.stream, request.header.request_id());
  EXPECT_TRUE(core->Wait(pull).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(core->Wait(pull)));
  EXPECT_TRUE(core->failure().ok()) << "the client continues after a wrong ticket";
}

TEST_F(ClientCoreTest, AWaitThatIsStoppedKeepsThePull) {
  const auto core = Open(Options());
  const ClientCore::Ticket pull = core->Start(Pull(*core, 0));
  const ScriptedTransport::Sent request = transport_.Await(2);
  std::atomic<bool> stop{true};
  EXPECT_EQ(core->WaitUnless(pull, &stop), std::nullopt);
  EXPECT_EQ(core->WaitUnless(pull, &stop), std::nullopt);
  transport_.Reply(request.stream, request.header.request_id());
  stop = false;
  EXPECT_EQ(core->WaitUnless(pull, &stop), absl::OkStatus());
  EXPECT_TRUE(absl::IsInvalidArgument(*core->WaitUnless(pull, &stop))) << "the pull is over";
}

TEST_F(ClientCoreTest, OneRequestCarriesAFrameAndItsPull) {
  const auto core = Open(Options());
  ClientCore::Ticket ticket = 0;
  ASSERT_TRUE(core->Push(Frame(), Pull(*core, 0), &ticket).ok());
  EXPECT_EQ(core->last_sequence(), 1u);
  EXPECT_TRUE(core->WaitPushes(1).ok());
  std::map<size_t, FrameHeader> requests = AwaitBoth(2);
  for (size_t stream = 0; stream < 2; ++stream) {
    EXPECT_EQ(requests[stream].push().sequence(), 1u);
    EXPECT_EQ(requests[stream].has_pull(), stream == 0);
    transport_.Reply(stream, requests[stream].request_id());
  }
  ASSERT_EQ(transport_.sent().size(), 4u);
  EXPECT_TRUE(core->Wait(ticket).ok());
  EXPECT_TRUE(core->WaitPushes(0).ok());
}

TEST_F(ClientCoreTest, WorkBeyondTheLimitsIsRefusedButAnOpenFrameIsFinished) {
  ParameterClientOptions options = Options();
  options.limits.max_frames = options.limits.max_pulls = 1;
  const auto core = Open(std::move(options));
  ASSERT_TRUE(core->PushEarly(kWeights, Frame()).ok());
  AwaitBoth(2);
  ASSERT_TRUE(core->Push(Frame(), nullptr, nullptr).ok());
  AwaitBoth(4);
  EXPECT_TRUE(absl::IsResourceExhausted(core->PushEarly(kWeights, Frame())));
  EXPECT_TRUE(absl::IsResourceExhausted(core->Push(Frame(), nullptr, nullptr)));
  EXPECT_EQ(core->last_sequence(), 1u);
  const ClientCore::Ticket pull = core->Start(Pull(*core, 0));
  const auto request = transport_.Await(6);
  ASSERT_TRUE(request.header.has_pull());
  EXPECT_EQ(request.stream, 0u);
  EXPECT_TRUE(absl::IsResourceExhausted(core->Wait(core->Start(Pull(*core, 0)))));
  // Answers make room.
  for (const auto& sent : transport_.sent()) {
    if (!sent.header.has_hello()) transport_.Reply(sent.stream, sent.header.request_id());
  }
  EXPECT_TRUE(core->Wait(pull).ok());
  EXPECT_TRUE(core->WaitPushes(0).ok());
  EXPECT_TRUE(core->Push(Frame(), nullptr, nullptr).ok());
}

TEST_F(ClientCoreTest, OnlyARefusalOfAnOutstandingRequestEndsTheClient) {
  const auto core = Open(Options());
  const ClientCore::Ticket pull = core->Start(Pull(*core, 0));
  const ScriptedTransport::Sent request = transport_.Await(2);
  ASSERT_TRUE(request.header.has_pull());
  const uint64_t id = request.header.request_id();
  transport_.Reply(0, id + 1, absl::StatusCode::kInternal);
  transport_.Reply(1, id, absl::StatusCode::kInternal);
  transport_.Reply(1, id);
  EXPECT_TRUE(core->failure().ok());
  transport_.Reply(0, id, absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::IsInvalidArgument(core->Wait(pull)));
  EXPECT_THAT(std::string(core->failure().message()), HasSubstr("pserver 0 at a"));
  EXPECT_TRUE(absl::IsInvalidArgument(core->Push(Frame(), nullptr, nullptr)));
  EXPECT_TRUE(absl::IsInvalidArgument(core->PushEarly(kWeights, Frame())));
}

TEST_F(ClientCoreTest, ARefusedHelloAsksForARouteOrEndsTheClient) {
  ParameterClientOptions options = Options();
  options.get_route = [] { return TwoPservers(2); };
  const auto core = Connect(std::move(options));
  transport_.Reply(0, 0, absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(core->failure().ok());
  clock_.Advance(absl::Minutes(1));
  const ScriptedTransport::Sent again = transport_.Await(2);
  EXPECT_EQ(again.address, "a");
  EXPECT_EQ(again.header.generation(), 2u);
  EXPECT_EQ(core->route().generation(), 2u);
  transport_.Reply(1, 0, absl::StatusCode::kAborted);
  EXPECT_TRUE(absl::IsAborted(core->failure()));
}

TEST_F(ClientCoreTest, RefreshRouteTakesTheSameRouteAndNeedsAScheduler) {
  std::atomic<int> asked{0};
  ParameterClientOptions options = Options();
  options.get_route = [&asked] {
    ++asked;
    return TwoPservers();
  };
  const auto core = Connect(std::move(options));
  EXPECT_TRUE(core->RefreshRoute().ok());
  EXPECT_EQ(asked, 1);
  const auto alone = ClientCore::Create(Options());
  ASSERT_TRUE(alone.ok()) << alone.status();
  EXPECT_TRUE(absl::IsFailedPrecondition((*alone)->RefreshRoute()));
}

// As when a worker is lost, and its replacement, too: in sync the others wait for both.
TEST_F(ClientCoreTest, EachNewGenerationStartsTheTimeoutAgain) {
  std::atomic<uint64_t> generation{1};
  ParameterClientOptions options = Options();
  options.limits.timeout = absl::Seconds(180);
  options.get_route = [&generation] { return TwoPservers(generation); };
  const auto core = Open(std::move(options));
  const ClientCore::Ticket pull = core->Start(Pull(*core, 0));
  const ScriptedTransport::Sent request = transport_.Await(2);
  std::atomic<bool> over{false};
  absl::Status status;
  std::thread caller([&] {
    status = core->Wait(pull);
    over = true;
  });
  const auto await = [](const std::function<bool()>& condition) {
    for (int i = 0; i < 60'000 && !condition(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return condition();
  };
  EXPECT_TRUE(await([&] { return !core->WaitingFor().empty(); }));
  // The same generation is no news.
  clock_.Advance(absl::Seconds(10));
  for (const uint64_t next : {2, 3, 4}) {
    generation = next;
    clock_.Advance(absl::Seconds(110));
    EXPECT_TRUE(await([&] { return core->excused_at() == clock_.Now() || over; }));
    EXPECT_FALSE(over) << "generation " << next;
  }
  clock_.Advance(absl::Seconds(170));
  EXPECT_FALSE(over);
  clock_.Advance(absl::Seconds(11));
  EXPECT_TRUE(await([&] { return over.load(); })) << "no loss excuses the wait any more";
  caller.join();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

// A transport's thread reports an accepted hello after the core's thread has broken the stream.
TEST_F(ClientCoreTest, AStreamThatARouteBreaksWhileItOpensIsOpenedAgain) {
  ParameterClientOptions options = Options();
  options.get_route = [] { return RouteTo(2, {"a", "b"}, {0, 0, 0, 1, 0, 0, 1}); };
  const auto core = Open(std::move(options));
  EXPECT_TRUE(core->RefreshRoute().ok());  // "a" gains shard 2
  core->OnOpen(0);
  clock_.Advance(absl::Minutes(1));
  const ScriptedTransport::Sent again = transport_.Await(2);
  EXPECT_EQ(again.address, "a");
  EXPECT_TRUE(again.header.has_hello());
  transport_.Reply(again.stream, 0);
  const ClientCore::Ticket pull = core->Start(Pull(*core, 2));
  const ScriptedTransport::Sent request = transport_.Await(3);
  EXPECT_EQ(request.address, "a");
  transport_.Reply(request.stream, request.header.request_id());
  EXPECT_TRUE(core->Wait(pull).ok());
}

TEST_F(ClientCoreTest, OnlyANewerGenerationAsksForARoute) {
  std::atomic<int> asked{0};
  ParameterClientOptions options = Options();
  options.get_route = [&asked] {
    ++asked;
    return RouteTo(2, {"a", "c"}, {0, 0, 1, 1, 0, 0, 1});
  };
  const auto core = Open(std::move(options));
  core->NoteGeneration(1);
  // The core fetches a route that it wants before it opens a stream.
  transport_.stream(0).on_closed(absl::UnavailableError("gone"));
  clock_.Advance(absl::Minutes(1));
  const ScriptedTransport::Sent again = transport_.Await(2);
  EXPECT_EQ(again.address, "a");
  EXPECT_EQ(again.header.generation(), 1u);
  EXPECT_EQ(asked, 0);
  transport_.Reply(2, 0);
  core->NoteGeneration(2);
  const ScriptedTransport::Sent next = transport_.Await(3);
  EXPECT_EQ(next.address, "c");
  EXPECT_EQ(next.header.generation(), 2u);
  EXPECT_EQ(asked, 1);
}

}  // namespace
}  // namespace sluice
