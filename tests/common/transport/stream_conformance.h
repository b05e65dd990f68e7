// What every transport must do: one suite, instantiated in the test of each.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/transport/recording_streams.h"

namespace sluice {

// One transport with a place to run a server.
class TransportHarness {
 public:
  using Unary = std::function<absl::StatusOr<std::string>(const std::string&)>;
  virtual ~TransportHarness() = default;
  virtual Transport* transport() = 0;
  // Returns the address. `unary` answers "/sluice.Pserver/SaveShards".
  virtual std::string Start(StreamHandlerFactory factory, Unary unary) = 0;
  // The server dies with its streams open.
  virtual void Kill() = 0;
  virtual std::string AddressOfNobody() = 0;
};

class StreamConformanceTest
    : public ::testing::TestWithParam<std::function<std::unique_ptr<TransportHarness>()>> {
 protected:
  std::string Start(ScriptedServer* server) { return harness_->Start(server->factory(), nullptr); }
  Transport* transport() { return harness_->transport(); }
  const std::unique_ptr<TransportHarness> harness_ = GetParam()();
};

TEST_P(StreamConformanceTest, EchoesMessagesOfEverySizeInOrder) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  std::vector<std::string> sent;
  for (size_t size : {0u, 1u, 7u, 4096u, 65537u, 0u, 1u << 20, 3u, 8u << 20}) {
    std::string text(size, '\0');
    for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 131 + size);
    sent.push_back(text);
    client.Send(std::move(text));
  }
  ASSERT_TRUE(client.AwaitMessages(sent.size()));
  client.Destroy();
  ASSERT_EQ(client.received().size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) EXPECT_TRUE(client.received()[i] == sent[i]) << i;
  EXPECT_TRUE(server.AwaitClosed(1));
  harness_->Kill();
}

TEST_P(StreamConformanceTest, MessagesOfSeveralSlicesArriveWhole) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  client.stream()->Send({Slice::FromString("head"), Slice(),
                         Slice::FromString(std::string(100000, 'x')), Slice("static", 6, nullptr)});
  client.stream()->Send({});
  ASSERT_TRUE(client.AwaitMessages(2));
  client.Destroy();
  EXPECT_TRUE(client.received()[0] == "head" + std::string(100000, 'x') + "static");
  EXPECT_EQ(client.received()[1], "");
  harness_->Kill();
}

TEST_P(StreamConformanceTest, ManyStreamsDoNotMix) {
  ScriptedServer server(Echo);
  const std::string address = Start(&server);
  std::vector<std::unique_ptr<RecordingClient>> clients;
  for (int c = 0; c < 12; ++c)
    clients.push_back(std::make_unique<RecordingClient>(transport(), address));
  for (int m = 0; m < 30; ++m) {
    for (int c = 0; c < 12; ++c) clients[c]->Send(absl::StrCat("stream ", c, " message ", m));
  }
  for (int c = 0; c < 12; ++c) {
    ASSERT_TRUE(clients[c]->AwaitMessages(30));
    clients[c]->Destroy();
    for (int m = 0; m < 30; ++m) {
      EXPECT_EQ(clients[c]->received()[m], absl::StrCat("stream ", c, " message ", m));
    }
  }
  EXPECT_TRUE(server.AwaitClosed(12));
  harness_->Kill();
}

TEST_P(StreamConformanceTest, SendsOfManyThreadsAllArriveEachInItsOrder) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&client, t] {
      for (int m = 0; m < 50; ++m)
        client.Send(std::string({static_cast<char>(t), static_cast<char>(m)}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(client.AwaitMessages(200));
  client.Destroy();
  int next[4] = {0, 0, 0, 0};
  for (const std::string& message : client.received())
    EXPECT_EQ(message[1], next[message[0] & 3]++);
  harness_->Kill();
}

TEST_P(StreamConformanceTest, ClientCloseSendsWhatIsQueuedAndEndsBothSidesWithOk) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  for (int i = 0; i < 20; ++i) client.Send(std::string(10000, 'a'));
  client.stream()->Close();
  client.stream()->Close();
  client.Send("never sent");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(client.status().ok()) << client.status();
  EXPECT_EQ(client.received().size(), 20u);  // answers queued before the end are sent too
  EXPECT_TRUE(server.AwaitClosed(1));
  client.Destroy();
  EXPECT_EQ(client.closed(), 1);
  harness_->Kill();
}

TEST_P(StreamConformanceTest, ServerCloseSendsWhatIsQueuedAndEndsBothSidesWithOk) {
  ScriptedServer server([](Stream* stream, const std::string& message) {
    for (int i = 0; i < 20; ++i) stream->Send({Slice::FromString(std::string(10000, 'b'))});
    stream->Close();
    stream->Send({Slice::FromString("never sent")});
  });
  RecordingClient client(transport(), Start(&server));
  client.Send("go");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(client.status().ok()) << client.status();
  EXPECT_EQ(client.received().size(), 20u);
  EXPECT_TRUE(server.AwaitClosed(1));
  client.Destroy();
  EXPECT_EQ(client.closed(), 1);
  harness_->Kill();
}

TEST_P(StreamConformanceTest, KilledServerEndsItsStreamsWithUnavailable) {
  ScriptedServer server(Echo);
  const std::string address = Start(&server);
  RecordingClient first(transport(), address), second(transport(), address);
  first.Send("x");
  second.Send("y");
  ASSERT_TRUE(first.AwaitMessages(1));
  ASSERT_TRUE(second.AwaitMessages(1));
  harness_->Kill();
  EXPECT_EQ(server.closed(), 2);  // when the server is gone, so are its handlers
  ASSERT_TRUE(first.AwaitClosed());
  ASSERT_TRUE(second.AwaitClosed());
  EXPECT_EQ(first.status().code(), absl::StatusCode::kUnavailable) << first.status();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
  first.Send("does nothing");
}

TEST_P(StreamConformanceTest, AddressOfNobodyIsUnavailableAndNamed) {
  const std::string address = harness_->AddressOfNobody();
  RecordingClient client(transport(), address);
  client.Send("x");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable) << client.status();
  EXPECT_THAT(std::string(client.status().message()), ::testing::HasSubstr(address));
}

TEST_P(StreamConformanceTest, DestroyedStreamIsCancelledAndReleasesWhatWasQueued) {
  ScriptedServer server([](Stream*, const std::string&) {});
  const std::string address = Start(&server);
  auto memory = std::make_shared<std::string>(1 << 20, 'm');
  {
    RecordingClient client(transport(), address);
    for (int i = 0; i < 32; ++i) {
      client.stream()->Send({Slice(memory->data(), memory->size(), memory)});
    }
    client.Destroy();
    EXPECT_EQ(client.closed(), 1);
    EXPECT_EQ(client.status().code(), absl::StatusCode::kCancelled) << client.status();
  }
  harness_->Kill();
  for (int i = 0; i < 100000 && memory.use_count() > 1; ++i) std::this_thread::yield();
  EXPECT_EQ(memory.use_count(), 1);
}

TEST_P(StreamConformanceTest, SlicesAreReleasedOnceSent) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  auto memory = std::make_shared<std::string>(300000, 'm');
  client.stream()->Send({Slice(memory->data(), memory->size(), memory)});
  ASSERT_TRUE(client.AwaitMessages(1));
  client.Send("flush");
  ASSERT_TRUE(client.AwaitMessages(2));
  for (int i = 0; i < 20000 && memory.use_count() > 1; ++i) std::this_thread::yield();
  EXPECT_EQ(memory.use_count(), 1);
  client.Destroy();
  harness_->Kill();
}

TEST_P(StreamConformanceTest, LateAnswersDoNothing) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  client.Send("x");
  ASSERT_TRUE(client.AwaitMessages(1));
  std::shared_ptr<Stream> late = server.TakeLastStream();
  client.Destroy();
  ASSERT_TRUE(server.AwaitClosed(1));
  late->Send({Slice::FromString("too late")});
  late->Close();
  harness_->Kill();
  late->Send({Slice::FromString("later still")});
  late.reset();
  EXPECT_EQ(client.received().size(), 1u);
}

TEST_P(StreamConformanceTest, AnswersComeFromAnyThread) {
  std::vector<std::thread> threads;
  ScriptedServer server([](Stream*, const std::string&) {});
  RecordingClient client(transport(), Start(&server));
  ASSERT_TRUE(server.AwaitOpened(1));
  std::shared_ptr<Stream> stream = server.TakeLastStream();
  for (int t = 0; t < 3; ++t) {
    threads.emplace_back([stream] {
      for (int i = 0; i < 40; ++i) stream->Send({Slice::FromString("answer")});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(client.AwaitMessages(120));
  client.Destroy();
  stream.reset();
  harness_->Kill();
}

TEST_P(StreamConformanceTest, RefusedStreamIsResourceExhausted) {
  const std::string address = harness_->Start(
      [](std::shared_ptr<Stream>, std::string) { return std::unique_ptr<StreamHandler>(); },
      nullptr);
  RecordingClient client(transport(), address);
  client.Send("x");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kResourceExhausted) << client.status();
  client.Destroy();
  harness_->Kill();
}

TEST_P(StreamConformanceTest, HundredStreamsOpenAndCloseOneAfterAnother) {
  ScriptedServer server(Echo);
  const std::string address = Start(&server);
  for (int i = 0; i < 100; ++i) {
    RecordingClient client(transport(), address);
    client.Send("x");
    if (i % 3 == 0) continue;  // destroyed at once
    ASSERT_TRUE(client.AwaitMessages(1));
    if (i % 3 == 1) continue;
    client.stream()->Close();
    ASSERT_TRUE(client.AwaitClosed());
  }
  harness_->Kill();
}

TEST_P(StreamConformanceTest, UnaryCallCarriesBytesAndErrors) {
  const std::string address = harness_->Start(
      [](std::shared_ptr<Stream>, std::string) { return std::unique_ptr<StreamHandler>(); },
      [](const std::string& request) -> absl::StatusOr<std::string> {
        if (request == "fail") return absl::DataLossError("disk of shard 3 is full");
        return "reply to " + request;
      });
  const std::string method = "/sluice.Pserver/SaveShards";
  auto reply = transport()->Call(address, method, std::string("a\0b", 3), absl::Seconds(10));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(*reply, "reply to " + std::string("a\0b", 3));
  reply = transport()->Call(address, method, "fail", absl::Seconds(10));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(reply.status().message()),
              ::testing::HasSubstr("disk of shard 3 is full"));
  reply = transport()->Call(address, "/sluice.Pserver/Nothing", "", absl::Seconds(10));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnimplemented) << reply.status();
  reply = transport()->Call(harness_->AddressOfNobody(), method, "", absl::Seconds(2));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable) << reply.status();
  harness_->Kill();
}

}  // namespace sluice
