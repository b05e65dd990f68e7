#include "tests/common/transport/faulty_transport.h"

#include "tests/common/transport/in_process_transport.h"
#include "tests/common/transport/stream_conformance.h"

namespace sluice {
namespace {

// A FaultyTransport that never cuts must pass the suite like the transport that it decorates.
class FaultyHarness : public TransportHarness {
 public:
  Transport* transport() override { return &faulty_; }
  std::string Start(StreamHandlerFactory factory, Unary unary) override {
    inner_.Bind("p", std::move(factory));
    if (unary != nullptr) inner_.RegisterUnary("p", "/sluice.Pserver/SaveShards", std::move(unary));
    return "p";
  }
  void Kill() override { inner_.Unbind("p"); }
  std::string AddressOfNobody() override { return "nobody"; }

 private:
  static FaultyTransport::Options NoCuts() {
    FaultyTransport::Options options;
    options.max_cuts = 0;
    return options;
  }
  InProcessTransport inner_;
  FaultyTransport faulty_{&inner_, NoCuts()};
};

INSTANTIATE_TEST_SUITE_P(FaultyWithoutCuts, StreamConformanceTest,
                         ::testing::Values([] { return std::make_unique<FaultyHarness>(); }));

// Opens `streams` streams one after another and sends on each until it is cut. Returns how many
// echoes came back on each.
std::vector<size_t> EchoesBeforeCut(FaultyTransport* transport, int streams) {
  std::vector<size_t> echoes;
  for (int i = 0; i < streams; ++i) {
    RecordingClient client(transport, "p");
    size_t n = 0;
    do {  // with one message in flight, only the point of the cut decides
      client.Send("x");
    } while (client.AwaitMessageOrEnd(++n));
    EXPECT_TRUE(client.AwaitClosed());
    EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable);
    client.Destroy();
    EXPECT_EQ(client.closed(), 1);
    echoes.push_back(client.received().size());
  }
  return echoes;
}

TEST(FaultyTransportTest, SameSeedCutsAtTheSameMessages) {
  std::vector<std::vector<size_t>> runs;
  for (uint64_t seed : {7u, 7u, 8u}) {
    InProcessTransport inner;
    ScriptedServer server(Echo);
    inner.Bind("p", server.factory());
    FaultyTransport::Options options;
    options.seed = seed;
    options.mean_messages = 10;
    FaultyTransport faulty(&inner, options);
    runs.push_back(EchoesBeforeCut(&faulty, 20));
    EXPECT_EQ(faulty.cuts(), 20);
    inner.Unbind("p");
    EXPECT_EQ(server.closed(), 20);
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_NE(runs[0], runs[2]);
  for (size_t echoes : runs[0]) EXPECT_LE(echoes, 9u);
}

TEST(FaultyTransportTest, BothRequestsAndRepliesAreLost) {
  InProcessTransport inner;
  std::atomic<int> applied{0};
  ScriptedServer server([&](Stream* stream, const std::string& message) {
    ++applied;
    Echo(stream, message);
  });
  inner.Bind("p", server.factory());
  FaultyTransport::Options options;
  options.mean_messages = 6;
  FaultyTransport faulty(&inner, options);
  int lost_replies = 0, lost_requests = 0;
  for (int i = 0; i < 30; ++i) {
    applied = 0;
    const size_t echoes = EchoesBeforeCut(&faulty, 1)[0];
    ASSERT_TRUE(server.AwaitClosed(i + 1));
    (static_cast<size_t>(applied) > echoes ? lost_replies : lost_requests)++;
  }
  EXPECT_GT(lost_replies, 3);
  EXPECT_GT(lost_requests, 3);
  inner.Unbind("p");
}

TEST(FaultyTransportTest, CutsNoStreamAfterMaxCuts) {
  InProcessTransport inner;
  ScriptedServer server(Echo);
  inner.Bind("p", server.factory());
  FaultyTransport::Options options;
  options.mean_messages = 4;
  options.max_cuts = 2;
  FaultyTransport faulty(&inner, options);
  EchoesBeforeCut(&faulty, 2);
  RecordingClient client(&faulty, "p");
  for (int i = 0; i < 100; ++i) client.Send("x");
  EXPECT_TRUE(client.AwaitMessages(100));
  client.stream()->Close();
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(client.status().ok()) << client.status();
  client.Destroy();
  EXPECT_EQ(faulty.cuts(), 2);
  inner.Unbind("p");
}

TEST(FaultyTransportTest, StreamDestroyedDuringItsCutEndsOnce) {
  InProcessTransport inner;
  ScriptedServer server(Echo);
  inner.Bind("p", server.factory());
  FaultyTransport::Options options;
  options.mean_messages = 3;
  FaultyTransport faulty(&inner, options);
  for (int i = 0; i < 200; ++i) {
    RecordingClient client(&faulty, "p");
    for (int m = 0; m < 6; ++m) client.Send("x");
    client.Destroy();
    EXPECT_EQ(client.closed(), 1);
  }
  inner.Unbind("p");
}

TEST(FaultyTransportTest, CallsAreNotDisturbed) {
  InProcessTransport inner;
  inner.RegisterUnary("p", "/m", [](const std::string& request) { return request + "!"; });
  FaultyTransport faulty(&inner, {});
  EXPECT_EQ(*faulty.Call("p", "/m", "hello", absl::Seconds(1)), "hello!");
}

}  // namespace
}  // namespace sluice
