// Tests that every transport must pass: the end of a stream that is closed, killed, refused or
// destroyed.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/common/transport/transport_harness.h"

namespace sluice {

TEST_P(StreamConformanceTest, ClientCloseSendsQueuedMessagesAndEndsBothSidesWithOk) {
  ScriptedServer server(Echo);
  RecordingClient client(transport(), Start(&server));
  for (int i = 0; i < 20; ++i) client.Send(std::string(10000, 'a'));
  client.stream()->Close();
  client.stream()->Close();
  client.Send("never sent");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_TRUE(client.status().ok()) << client.status();
  EXPECT_EQ(client.received().size(), 20u);  // the server's queued answers are sent too
  EXPECT_TRUE(server.AwaitClosed(1));
  client.Destroy();
  EXPECT_EQ(client.closed(), 1);
  harness_->Kill();
}

TEST_P(StreamConformanceTest, ServerCloseSendsQueuedMessagesAndEndsBothSidesWithOk) {
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
  EXPECT_EQ(server.closed(), 2);  // Kill returns after the handlers have ended
  ASSERT_TRUE(first.AwaitClosed());
  ASSERT_TRUE(second.AwaitClosed());
  EXPECT_EQ(first.status().code(), absl::StatusCode::kUnavailable) << first.status();
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
  first.Send("does nothing");
}

TEST_P(StreamConformanceTest, UnusedAddressIsUnavailableAndNamed) {
  const std::string address = harness_->AddressOfNobody();
  RecordingClient client(transport(), address);
  client.Send("x");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kUnavailable) << client.status();
  EXPECT_THAT(std::string(client.status().message()), ::testing::HasSubstr(address));
}

TEST_P(StreamConformanceTest, DestroyedStreamIsCancelledAndReleasesItsQueue) {
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
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (memory.use_count() > 1 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::yield();
  EXPECT_EQ(memory.use_count(), 1);
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

TEST_P(StreamConformanceTest, RefusedStreamIsResourceExhausted) {
  const std::string address = harness_->Start(
      [](std::shared_ptr<Stream>, const PeerIdentity&) { return std::unique_ptr<StreamHandler>(); },
      nullptr);
  RecordingClient client(transport(), address);
  client.Send("x");
  ASSERT_TRUE(client.AwaitClosed());
  EXPECT_EQ(client.status().code(), absl::StatusCode::kResourceExhausted) << client.status();
  client.Destroy();
  harness_->Kill();
}

TEST_P(StreamConformanceTest, ManyStreamsOpenAndCloseInTurn) {
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

}  // namespace sluice
