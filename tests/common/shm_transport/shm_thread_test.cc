#include "common/shm_transport/shm_thread.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/common/shm_transport/stream_pair.h"

namespace sluice {
namespace {

constexpr size_t kShmThreadRing = 8192;

class ShmThreadTest : public ::testing::Test {
 protected:
  explicit ShmThreadTest(absl::Duration keepalive = absl::Seconds(10)) : host_(HostForTest()) {
    host_->keepalive_time = host_->keepalive_timeout = keepalive;
    for (auto* thread : {&client_thread_, &server_thread_})
      *thread = std::make_shared<ShmThread>(keepalive / 8);
  }
  ~ShmThreadTest() override {
    client_.reset();
    server_.reset();
    client_thread_->Stop();
    server_thread_->Stop();
  }
  void Connect() {
    LinkPair links(kShmThreadRing);
    client_ = std::make_unique<RecordedStream>(ShmStream::Side::kClient, std::move(links.client),
                                               host_, client_thread_);
    server_ = std::make_unique<RecordedStream>(ShmStream::Side::kServer, std::move(links.server),
                                               host_, server_thread_);
  }

  std::shared_ptr<ShmStream::Host> host_;
  std::shared_ptr<ShmThread> client_thread_, server_thread_;
  std::unique_ptr<RecordedStream> client_, server_;
};

TEST_F(ShmThreadTest, AThreadWithoutStreamsStops) {}

TEST_F(ShmThreadTest, SleepingEndsAreWokenByEveryMessage) {
  Connect();
  for (size_t i = 1; i <= 30; ++i) {
    // Longer than both ends look for events.
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    client_->Send("x");
    ASSERT_TRUE(server_->AwaitMessages(i));
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    server_->Send("y");
    ASSERT_TRUE(client_->AwaitMessages(i));
  }
}

TEST_F(ShmThreadTest, AMessageOfManyRingsWakesBothEndsAsOftenAsItMust) {
  Connect();
  std::string text(1 << 20, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 >> 5);
  client_->Send(text);
  server_->Send(text);
  ASSERT_TRUE(server_->AwaitMessages(1));
  ASSERT_TRUE(client_->AwaitMessages(1));
  client_->stream()->Close();
  ASSERT_TRUE(client_->AwaitFinished());
  ASSERT_TRUE(server_->AwaitFinished());
  EXPECT_TRUE(server_->received()[0] == text);
  EXPECT_TRUE(client_->received()[0] == text);
  EXPECT_TRUE(client_->status().ok()) << client_->status();
  EXPECT_TRUE(server_->status().ok()) << server_->status();
  EXPECT_EQ(host_->queued()->bytes(), 0u);
}

TEST_F(ShmThreadTest, WhatADyingPeerHasWrittenIsStillRead) {
  LinkPair links(kShmThreadRing);
  RecordedStream server(ShmStream::Side::kServer, std::move(links.server), host_, server_thread_);
  // The server sleeps by now, so that it hears of the end first.
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  RingWriter writer(links.client.control(true), links.client.data(true), kShmThreadRing);
  for (int i = 0; i < 3; ++i) {
    FrameHead head;
    head.kind = FrameHead::kMessage;
    head.bytes = 4;
    writer.Write(reinterpret_cast<const uint8_t*>(&head), sizeof(head));
    writer.Write(reinterpret_cast<const uint8_t*>("last"), 4);
  }
  writer.Publish();
  links.client = ShmLink();  // as when its process is killed
  ASSERT_TRUE(server.AwaitFinished());
  EXPECT_EQ(server.received().size(), 3u);
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable) << server.status();
}

class ImpatientThreadTest : public ShmThreadTest {
 protected:
  ImpatientThreadTest() : ShmThreadTest(absl::Seconds(2)) {}
};

TEST_F(ImpatientThreadTest, APeerThatIsSilentButLivesIsKept) {
  Connect();
  client_->Send("x");
  ASSERT_TRUE(server_->AwaitMessages(1));
  // Longer than a peer that does not answer would be kept.
  std::this_thread::sleep_for(std::chrono::seconds(5));
  client_->Send("y");
  EXPECT_TRUE(server_->AwaitMessages(2));
}

TEST_F(ImpatientThreadTest, APeerThatDoesNotAnswerEndsTheStreamWithUnavailable) {
  LinkPair links(kShmThreadRing);
  // The test keeps the client's end open and does nothing with it, as a stopped process.
  RecordedStream server(ShmStream::Side::kServer, std::move(links.server), host_, server_thread_);
  ASSERT_TRUE(server.AwaitFinished());
  EXPECT_EQ(server.status().code(), absl::StatusCode::kUnavailable) << server.status();
}

}  // namespace
}  // namespace sluice
