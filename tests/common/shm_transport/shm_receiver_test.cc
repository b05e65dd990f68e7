#include "common/shm_transport/shm_receiver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "common/wire/frame.h"
#include "tests/common/shm_transport/stream_pair.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;

constexpr size_t kShmReceiverRing = 4096;

class ShmReceiverTest : public ::testing::Test, public ShmReceiver::Listener {
 protected:
  ShmReceiverTest() {
    bounds_.max_message_bytes = 4 << 20;
    bounds_.max_first_message_bytes = 1000;
    Make();
  }
  void Make() { receiver_ = std::make_unique<ShmReceiver>(links_.server, true, bounds_, this); }

  void OnMessage(Message message) override { messages_.push_back(Flat(message)); }
  void OnLent(const LentMessage& message) override {
    messages_.push_back(Flat(message.Copy()));
    if (on_lent_ != nullptr) on_lent_(message);
  }
  void OnEnd() override { ++ends_; }
  void OnFault(const absl::Status& fault) override {
    fault_.Update(fault);
    failed_ = true;
  }
  bool failed() const override { return failed_; }

  // Writes as the peer does, which must have room for it.
  void Write(const std::string& bytes) {
    ASSERT_LE(bytes.size(), writer_.Room().value());
    writer_.Write(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
    writer_.Publish();
  }
  static std::string Head(uint32_t kind, uint64_t bytes, uint32_t zero = 0) {
    FrameHead head;
    head.kind = kind, head.bytes = bytes, head.zero = zero;
    return std::string(reinterpret_cast<const char*>(&head), sizeof(head));
  }
  static std::string Frame(const std::string& text) {
    return Head(FrameHead::kMessage, text.size()) + text;
  }
  // Writes all of it, as there is room, and reads meanwhile.
  void Pass(const std::string& bytes) {
    for (size_t at = 0; at < bytes.size();) {
      const size_t n = std::min(bytes.size() - at, writer_.Room().value());
      Write(bytes.substr(at, n));
      at += n;
      receiver_->Read();
    }
  }

  LinkPair links_{kShmReceiverRing};
  RingWriter writer_{links_.client.control(true), links_.client.data(true), kShmReceiverRing};
  ShmReceiver::Bounds bounds_;
  std::unique_ptr<ShmReceiver> receiver_;
  std::vector<std::string> messages_;
  std::function<void(const LentMessage&)> on_lent_;
  int ends_ = 0;
  bool failed_ = false;
  absl::Status fault_;
};

TEST_F(ShmReceiverTest, MessagesArriveWhole) {
  EXPECT_FALSE(receiver_->Read());
  const std::string two = Frame("first") + Frame("");
  Write(two.substr(0, 10));
  EXPECT_FALSE(receiver_->Read()) << "a part of a head";
  Write(two.substr(10, 8));
  EXPECT_TRUE(receiver_->Read());
  EXPECT_TRUE(messages_.empty());
  Write(two.substr(18));
  EXPECT_TRUE(receiver_->Read());
  EXPECT_THAT(messages_, ElementsAre("first", ""));
  EXPECT_EQ(receiver_->frames(), 2u);
}

TEST_F(ShmReceiverTest, ALongMessagePassesASmallRing) {
  std::string text(3 << 20, '\0');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>(i * 7 >> 5);
  Pass(Frame("hello") + Frame(text) + Frame("bye"));
  ASSERT_EQ(messages_.size(), 3u);
  EXPECT_TRUE(messages_[1] == text);
  EXPECT_EQ(messages_[2], "bye");
}

TEST_F(ShmReceiverTest, AWriterThatWaitsForRoomIsWoken) {
  Write(Frame(std::string(1000, 'x')) + Frame(std::string(kShmReceiverRing - 1032, 'x')));
  writer_.AnnounceWait();
  EXPECT_EQ(writer_.Room().value(), 0u);
  EXPECT_TRUE(receiver_->Read());
  EXPECT_EQ(messages_.size(), 2u);
  EXPECT_EQ(writer_.Room().value(), kShmReceiverRing);
  const auto packet = links_.client.socket.Receive(absl::ZeroDuration());
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_EQ(packet->bytes, "w");
}

TEST_F(ShmReceiverTest, NothingIsReadAfterTheEnd) {
  Write(Frame("x") + Head(FrameHead::kEnd, 0) + Frame("y"));
  receiver_->Read();
  EXPECT_FALSE(receiver_->Read());
  EXPECT_THAT(messages_, ElementsAre("x"));
  EXPECT_EQ(ends_, 1);
}

TEST_F(ShmReceiverTest, FramesThatNoPeerSendsAreFaults) {
  for (const std::string& head :
       {Head(77, 0), Head(FrameHead::kEnd, 1), Head(FrameHead::kMessage, 1, 5)}) {
    failed_ = false;
    fault_ = absl::OkStatus();
    Write(head);
    receiver_->Read();
    EXPECT_EQ(fault_.code(), absl::StatusCode::kDataLoss);
  }
  EXPECT_TRUE(messages_.empty());
  EXPECT_EQ(ends_, 0);
}

TEST_F(ShmReceiverTest, TheFirstMessageHasABoundOfItsOwn) {
  Pass(Frame(std::string(1000, 'x')) + Frame(std::string(1001, 'x')));
  EXPECT_EQ(messages_.size(), 2u);
  Write(Head(FrameHead::kMessage, bounds_.max_message_bytes + 1));
  receiver_->Read();
  EXPECT_EQ(fault_.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ShmReceiverTest, ALongerFirstMessageThanAllowedIsAFault) {
  Write(Head(FrameHead::kMessage, 1001));
  receiver_->Read();
  EXPECT_EQ(fault_.code(), absl::StatusCode::kResourceExhausted);
}

TEST_F(ShmReceiverTest, AnImpossiblePositionIsAFault) {
  links_.client.control(true)->written.store(kShmReceiverRing + 1);
  EXPECT_FALSE(receiver_->Read());
  EXPECT_EQ(fault_.code(), absl::StatusCode::kDataLoss);
}

TEST_F(ShmReceiverTest, ItSleepsOnlyWhenThereIsNothingToRead) {
  const auto* control = links_.client.control(true);
  EXPECT_TRUE(receiver_->Sleep());
  EXPECT_EQ(control->reader_sleeps.load(), 1u);
  receiver_->WakeUp();
  EXPECT_EQ(control->reader_sleeps.load(), 0u);
  const std::string frame = Frame("abc");
  Write(frame.substr(0, 15));
  EXPECT_TRUE(receiver_->Sleep()) << "a part of a head is not enough";
  Write(frame.substr(15, 1));
  EXPECT_FALSE(receiver_->Sleep());
  receiver_->Read();
  EXPECT_TRUE(receiver_->Sleep());
  Write(frame.substr(16, 2));
  EXPECT_TRUE(receiver_->Sleep()) << "nor a part of a message that is to be lent";
  Write(frame.substr(18));
  EXPECT_FALSE(receiver_->Sleep());
  receiver_->Read();
  Write(Head(FrameHead::kMessage, kShmReceiverRing));
  receiver_->Read();
  EXPECT_TRUE(receiver_->Sleep());
  Write("x");
  EXPECT_FALSE(receiver_->Sleep()) << "any byte of a longer message is";
}

TEST_F(ShmReceiverTest, MessagesUpToHalfOfTheRingAreLentInPlace) {
  bounds_.max_first_message_bytes = kShmReceiverRing;
  Make();
  const uint8_t* const ring = links_.server.data(true);
  std::vector<size_t> slices;
  on_lent_ = [&](const LentMessage& message) {
    slices.push_back(message.slices().size());
    for (const Slice& slice : message.slices()) {
      EXPECT_GE(slice.data(), ring);
      EXPECT_LE(slice.data() + slice.size(), ring + kShmReceiverRing);
    }
    EXPECT_EQ(writer_.Room().value(), kShmReceiverRing - sizeof(FrameHead) - message.size())
        << "its room is not given back while it is lent";
  };
  const std::string half(kShmReceiverRing / 2, 'h'), longer(kShmReceiverRing / 2 + 1, 'l'),
      wraps = "this one wraps";
  Write(Frame(half));
  receiver_->Read();
  EXPECT_EQ(writer_.Room().value(), kShmReceiverRing);
  EXPECT_THAT(slices, ElementsAre(1));
  Pass(Frame(longer));
  EXPECT_EQ(slices.size(), 1u) << "a longer one is copied";
  const size_t behind =
      (2 * kShmReceiverRing - 2 * sizeof(FrameHead) - half.size() - longer.size()) %
      kShmReceiverRing;
  Pass(Frame(std::string(behind - 2 * sizeof(FrameHead) - 5, 'b')));
  Write(Frame(wraps));
  receiver_->Read();
  EXPECT_EQ(slices.back(), 2u);
  ASSERT_EQ(messages_.size(), 4u);
  EXPECT_TRUE(messages_[0] == half && messages_[1] == longer);
  EXPECT_EQ(messages_[3], wraps);
  EXPECT_EQ(writer_.Room().value(), kShmReceiverRing);
}

TEST_F(ShmReceiverTest, WhatIsKeptOfALentMessageStaysWhenTheRingIsOverwritten) {
  Message kept;
  on_lent_ = [&](const LentMessage& message) {
    PayloadReader reader(message);
    reader.Skip(4);
    kept = reader.Keep(4);
    std::memset(links_.client.data(true), '!', kShmReceiverRing);  // the peer, at once
  };
  Write(Frame("not kept"));
  receiver_->Read();
  for (int i = 0; i < 10; ++i) {
    on_lent_ = nullptr;
    Write(Frame(std::string(kShmReceiverRing / 4, 'x')));
    receiver_->Read();
  }
  EXPECT_EQ(Flat(kept), "kept");
}

TEST_F(ShmReceiverTest, AMessageArrivesInOnePieceWhenItsPartsComeOneByOne) {
  const std::string frame = Frame("slowly");
  for (size_t at = 0; at + 1 < frame.size(); ++at) {
    Write(frame.substr(at, 1));
    receiver_->Read();
    EXPECT_FALSE(receiver_->Read()) << "nothing has come since";
    EXPECT_TRUE(messages_.empty());
  }
  Write(frame.substr(frame.size() - 1));
  EXPECT_TRUE(receiver_->Read());
  EXPECT_THAT(messages_, ElementsAre("slowly"));
}

TEST_F(ShmReceiverTest, AFrameThatThePeerLeavesUnfinishedDoesNotArrive) {
  const std::string frame = Frame("cut off");
  Write(frame.substr(0, 20));
  receiver_->Read();
  receiver_->SetPeerGone();
  Write(frame.substr(20));  // by whoever else holds the memory
  EXPECT_FALSE(receiver_->Read());
  EXPECT_TRUE(messages_.empty());
}

using ShmReceiverDeathTest = ShmReceiverTest;

TEST_F(ShmReceiverDeathTest, HoldingALentMessageAfterTheCallEndsTheProcess) {
  Message held;
  on_lent_ = [&](const LentMessage& message) { held = message.slices(); };
  Write(Frame("x"));
  EXPECT_DEATH(receiver_->Read(), "lent");
}

TEST_F(ShmReceiverTest, OnlyWhatAPeerHadWrittenWhenItWentIsRead) {
  Write(Frame("before"));
  receiver_->SetPeerGone();
  Write(Frame("after"));
  EXPECT_TRUE(receiver_->Read());
  EXPECT_FALSE(receiver_->Read());
  EXPECT_THAT(messages_, ElementsAre("before"));
}

TEST_F(ShmReceiverTest, AMessageThatWaitsInTheRingTakesNoMemory) {
  StreamBounds stream_bounds;
  stream_bounds.max_total_incoming_bytes = 1;
  ServedStreams served(stream_bounds, {});
  bounds_.served = &served;
  Make();
  const std::string frame = Frame(std::string(900, 'x'));
  Write(frame.substr(0, 500));
  receiver_->Read();
  EXPECT_EQ(receiver_->incoming_bytes(), 0u);
  Write(frame.substr(500));
  receiver_->Read();
  EXPECT_EQ(messages_.size(), 1u);
}

TEST_F(ShmReceiverTest, NothingMoreIsReadOnceTheStreamHasFailed) {
  failed_ = true;
  Write(Frame("x") + Frame("y"));
  receiver_->Read();
  EXPECT_LE(messages_.size(), 1u);
}

TEST_F(ShmReceiverTest, UnfinishedMessagesCountAgainstTheBoundOfAll) {
  StreamBounds stream_bounds;
  stream_bounds.max_total_incoming_bytes = 9000;
  ServedStreams served(stream_bounds, {});
  bounds_.served = &served;
  bounds_.max_first_message_bytes = 9000;
  Make();
  EXPECT_TRUE(served.incoming()->TryAdd(5000));  // of others
  Write(Head(FrameHead::kMessage, 4001) + "x");
  receiver_->Read();
  EXPECT_EQ(receiver_->incoming_bytes(), 0u) << "there is no memory for it now";
  served.incoming()->Sub(5000);
  EXPECT_TRUE(receiver_->Read());
  EXPECT_EQ(receiver_->incoming_bytes(), 4001u);
  EXPECT_EQ(served.incoming()->bytes(), 4001u);
  receiver_->Finish();
  EXPECT_EQ(served.incoming()->bytes(), 0u);
  Write(Frame("x"));
  EXPECT_FALSE(receiver_->Read());
}

}  // namespace
}  // namespace sluice
