#include "tests/common/transport/in_process_transport.h"

#include "tests/common/transport/stream_conformance.h"

namespace sluice {
namespace {

class InProcessHarness : public TransportHarness {
 public:
  Transport* transport() override { return &transport_; }
  std::string Start(StreamHandlerFactory factory, Unary unary) override {
    transport_.Bind("pserver-0", std::move(factory));
    if (unary != nullptr) {
      transport_.RegisterUnary("pserver-0", "/sluice.Pserver/SaveShards", std::move(unary));
    }
    return "pserver-0";
  }
  void Kill() override { transport_.Unbind("pserver-0"); }
  std::string AddressOfNobody() override { return "pserver-9"; }

 private:
  InProcessTransport transport_;
};

INSTANTIATE_TEST_SUITE_P(InProcess, StreamConformanceTest,
                         ::testing::Values([] { return std::make_unique<InProcessHarness>(); }));

TEST(InProcessTransportTest, MessagesAreCutIntoSlicesOfTheGivenSize) {
  InProcessTransport transport(/*slice_bytes=*/5);
  ScriptedServer server(Echo);
  transport.Bind("p", server.factory());
  Watched watched;
  std::vector<size_t> sizes;
  StreamCallbacks callbacks;
  callbacks.on_message = [&](Message message) {
    watched.Change([&] {
      for (const Slice& s : message) sizes.push_back(s.size());
    });
  };
  callbacks.on_closed = [](absl::Status) {};
  auto stream = transport.Connect("p", std::move(callbacks));
  stream->Send({Slice::FromString("123"), Slice::FromString("456789012")});
  ASSERT_TRUE(watched.Await([&] { return sizes.size() == 3; }));
  stream.reset();
  transport.Unbind("p");
  EXPECT_EQ(sizes, (std::vector<size_t>{5, 5, 2}));
}

TEST(InProcessTransportTest, AddressCanBeBoundAgainAfterItsServerDied) {
  InProcessTransport transport;
  ScriptedServer first(Echo), second(Echo);
  transport.Bind("p", first.factory());
  transport.Unbind("p");
  transport.Bind("p", second.factory());
  RecordingClient client(&transport, "p");
  client.Send("x");
  EXPECT_TRUE(client.AwaitMessages(1));
  client.Destroy();
  transport.Unbind("p");
}

}  // namespace
}  // namespace sluice
