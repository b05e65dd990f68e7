#include "common/shm_transport/shm_sender.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <thread>

#include "tests/common/shm_transport/stream_pair.h"

namespace sluice {
namespace {

constexpr size_t kRing = 4096;

class ShmSenderTest : public ::testing::Test {
 protected:
  ShmSenderTest() {
    auto link = std::make_shared<ShmLink>(std::move(links_.client));
    held_ = link;
    sender_ = std::make_unique<ShmSender>(std::move(link), true, 20000, &budget_);
  }
  static Message Text(std::string text) { return {Slice::FromString(std::move(text))}; }
  // Everything that is in the ring.
  std::string Take() {
    std::string bytes(reader_.Available().value(), '\0');
    reader_.Read(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
    woken_ = reader_.Publish();
    return bytes;
  }
  // The next packet that the reader gets; "" when there is none.
  std::string Packet() {
    const auto packet = links_.server.socket.Receive(absl::ZeroDuration());
    return packet.ok() ? packet->bytes : "";
  }
  // Texts that differ in length, so that some cross the end of the ring.
  static std::string TextOf(int thread, int i) {
    return absl::StrCat(thread, " ", i, ";",
                        std::string(i * 37 % 900, static_cast<char>('a' + thread)));
  }
  static std::string Frame(uint32_t kind, const std::string& text) {
    FrameHead head;
    head.kind = kind;
    head.bytes = text.size();
    return std::string(reinterpret_cast<const char*>(&head), sizeof(head)) + text;
  }

  LinkPair links_{kRing};
  ByteBudget budget_{30000};
  std::weak_ptr<const ShmLink> held_;
  std::unique_ptr<ShmSender> sender_;
  RingReader reader_{links_.server.control(true), links_.server.data(true), kRing};
  bool woken_ = false;  // the last Take would have woken the sender
};

TEST_F(ShmSenderTest, AMessageIsInTheRingAfterOnePumpAndASleeperIsWoken) {
  reader_.AnnounceSleep();
  EXPECT_EQ(sender_->Queue(Text("one")), ShmSender::Queued::kYes);
  EXPECT_EQ(sender_->queued_bytes(), 3u);
  EXPECT_TRUE(sender_->Pump().progress);
  EXPECT_EQ(sender_->queued_bytes(), 0u);
  EXPECT_EQ(Take(), Frame(FrameHead::kMessage, "one"));
  EXPECT_EQ(Packet(), "w");
  sender_->Queue({});
  sender_->Pump();
  EXPECT_EQ(Take(), Frame(FrameHead::kMessage, ""));
  EXPECT_EQ(Packet(), "") << "nobody sleeps";
}

TEST_F(ShmSenderTest, ALongMessageGoesOnWhenThereIsRoom) {
  std::string text(3 * kRing, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 >> 3);
  Message message = Text(text.substr(0, 5000));
  message.push_back(Slice::FromString(text.substr(5000)));
  sender_->Queue(std::move(message));
  std::string got;
  for (int turn = 0; turn < 4; ++turn) {
    EXPECT_TRUE(sender_->Pump().progress);
    EXPECT_EQ(sender_->state().blocked, turn < 3);
    EXPECT_FALSE(sender_->Pump().progress) << "the ring is full, or all is written";
    got += Take();
  }
  EXPECT_TRUE(got == Frame(FrameHead::kMessage, text));
  EXPECT_EQ(budget_.bytes(), 0u);
}

// The peer reads, and the stream's thread hears of it, just before the sending thread says that the
// ring is full.
TEST_F(ShmSenderTest, RoomThatComesBeforeTheRingIsCalledFullIsUsed) {
  std::string got;
  sender_->SetFoundFullForTest([&] {
    got += Take();
    EXPECT_TRUE(woken_) << "the reader wakes this end, once";
    if (sender_->state().blocked) sender_->Pump();
  });
  const std::string text(2 * kRing, 'x');
  sender_->Queue(Text(text));
  sender_->Pump();
  got += Take();
  EXPECT_EQ(got.size(), Frame(FrameHead::kMessage, text).size()) << "the rest was left behind";
  EXPECT_EQ(sender_->queued_bytes(), 0u);
}

TEST_F(ShmSenderTest, BoundsOfOneAndOfAllAreSaid) {
  sender_->Queue(Text(std::string(15000, 'x')));
  EXPECT_EQ(sender_->Queue(Text(std::string(5001, 'x'))), ShmSender::Queued::kTooMuch);
  EXPECT_EQ(sender_->queued_bytes(), 15000u);
  budget_.Add(13000);  // of others
  EXPECT_EQ(sender_->Queue(Text(std::string(5000, 'x'))), ShmSender::Queued::kBeyondBudget);
  EXPECT_EQ(sender_->queued_bytes(), 20000u);
}

TEST_F(ShmSenderTest, TheEndFrameIsTheLastOne) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_FALSE(sender_->closed_since().has_value());
  sender_->Queue(Text("last"));
  EXPECT_TRUE(sender_->Close(now));
  EXPECT_FALSE(sender_->Close(now + std::chrono::seconds(1)));
  EXPECT_EQ(sender_->closed_since(), now);
  EXPECT_EQ(sender_->Queue(Text("later")), ShmSender::Queued::kClosed);
  EXPECT_FALSE(sender_->state().end_written);
  EXPECT_TRUE(sender_->Pump().end_written);
  EXPECT_FALSE(sender_->Pump().end_written) << "it is said once";
  EXPECT_TRUE(sender_->state().end_written);
  EXPECT_EQ(Take(), Frame(FrameHead::kMessage, "last") + Frame(FrameHead::kEnd, ""));
}

TEST_F(ShmSenderTest, StopDropsWhatIsQueuedAndUnderWay) {
  const auto owner = std::make_shared<std::string>(10000, 'x');
  for (int i = 0; i < 2; ++i) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(owner->data());
    sender_->Queue({Slice(bytes, owner->size(), owner)});
  }
  sender_->Pump();
  EXPECT_EQ(owner.use_count(), 3);
  sender_->Stop();
  EXPECT_EQ(owner.use_count(), 1);
  EXPECT_EQ(budget_.bytes(), 0u);
  EXPECT_TRUE(sender_->closed());
  Take();
  EXPECT_FALSE(sender_->Pump().progress);
  EXPECT_FALSE(held_.expired());
  sender_->Finish();
  EXPECT_TRUE(held_.expired()) << "the link is given back";
}

TEST_F(ShmSenderTest, AnImpossibleReadPositionIsSaid) {
  links_.server.control(true)->read.store(12345);
  sender_->Queue(Text("x"));
  EXPECT_TRUE(sender_->Pump().impossible);
}

TEST_F(ShmSenderTest, ThreadsSendWholeMessagesEachInItsOrder) {
  constexpr int kThreads = 4, kMessages = 2000;
  std::atomic<int> running{kThreads};
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kMessages; ++i) {
        while (sender_->Queue(Text(TextOf(t, i))) == ShmSender::Queued::kTooMuch) sched_yield();
        sender_->Pump();
      }
      --running;
    });
  }
  std::string got;
  while (running > 0 || sender_->queued_bytes() > 0 || reader_.Available().value() > 0) {
    if (sender_->state().blocked) sender_->Pump();
    got += Take();
  }
  for (std::thread& thread : threads) thread.join();
  std::vector<int> next(kThreads, 0);
  for (size_t at = 0; at < got.size();) {
    FrameHead head;
    ASSERT_LE(at + sizeof(head), got.size());
    std::memcpy(&head, got.data() + at, sizeof(head));
    ASSERT_EQ(head.kind, FrameHead::kMessage);
    const std::string text = got.substr(at + sizeof(head), head.bytes);
    const int thread = text[0] - '0';
    ASSERT_TRUE(thread >= 0 && thread < kThreads) << text;
    ASSERT_EQ(text, TextOf(thread, next[thread]++));
    at += sizeof(head) + head.bytes;
  }
  for (const int n : next) EXPECT_EQ(n, kMessages);
  EXPECT_EQ(budget_.bytes(), 0u);
}

}  // namespace
}  // namespace sluice
