// Tests that every transport must pass: order, size and memory of messages, threads, unary calls.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/transport/transport_harness.h"

namespace sluice {

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

TEST_P(StreamConformanceTest, MessagesOfEachSendingThreadArriveInOrder) {
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

TEST_P(StreamConformanceTest, SlicesAreReleasedOnceSent) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  auto memory = std::make_shared<std::string>(300000, 'm');
  client.stream()->Send({Slice(memory->data(), memory->size(), memory)});
  ASSERT_TRUE(client.AwaitMessages(1));
  client.Send("flush");
  ASSERT_TRUE(client.AwaitMessages(2));
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (memory.use_count() > 1 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(memory.use_count(), 1);
  client.Destroy();
  harness_->Kill();
}

TEST_P(StreamConformanceTest, AnyThreadMaySendAnswers) {
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

TEST_P(StreamConformanceTest, UnaryCallCarriesBytesAndErrors) {
  const std::string address = harness_->Start(
      [](std::shared_ptr<Stream>, const PeerIdentity&) { return std::unique_ptr<StreamHandler>(); },
      [](const std::string& request) -> absl::StatusOr<std::string> {
        if (request == "fail") return absl::DataLossError("disk of shard 3 is full");
        return "reply to " + request;
      });
  const std::string method = "/sluice.Pserver/SaveShards";
  auto reply = transport()->Call(address, method, std::string("a\0b", 3), absl::Seconds(60));
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(*reply, "reply to " + std::string("a\0b", 3));
  reply = transport()->Call(address, method, "fail", absl::Seconds(60));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(reply.status().message()),
              ::testing::HasSubstr("disk of shard 3 is full"));
  reply = transport()->Call(address, "/sluice.Pserver/Nothing", "", absl::Seconds(60));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnimplemented) << reply.status();
  reply = transport()->Call(harness_->AddressOfNobody(), method, "", absl::Seconds(60));
  EXPECT_EQ(reply.status().code(), absl::StatusCode::kUnavailable) << reply.status();
  harness_->Kill();
}

}  // namespace sluice
