// A server's end of a stream, with a peer that writes whatever it likes.
#include "common/shm_transport/shm_stream.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstring>
#include <random>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "tests/common/shm_transport/stream_pair.h"

namespace sluice {
namespace {

constexpr size_t kShmStreamRing = 8192;

class HostilePeerTest : public ::testing::Test {
 protected:
  HostilePeerTest()
      : host_(HostForTest()),
        thread_(std::make_shared<ShmThread>(absl::Milliseconds(20))),
        peer_(std::move(links_.client)) {}
  ~HostilePeerTest() override { thread_->Stop(); }

  // The server's end; the test has the other one.
  std::unique_ptr<RecordedStream> Victim() {
    return std::make_unique<RecordedStream>(ShmStream::Side::kServer, std::move(links_.server),
                                            host_, thread_);
  }
  // Writes bytes to the server's ring and says that `written` are there.
  void Write(const void* bytes, size_t n, uint64_t written) {
    std::memcpy(peer_.data(true), bytes, n);
    peer_.control(true)->written.store(written);
    SendPacket("w");
  }
  void SendPacket(const std::string& bytes) {
    send(peer_.socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  void ExpectEnd(RecordedStream* victim, absl::StatusCode code) {
    ASSERT_TRUE(victim->AwaitFinished());
    EXPECT_EQ(victim->status().code(), code) << victim->status();
    EXPECT_EQ(victim->received().size(), 0u);
  }

  LinkPair links_{kShmStreamRing};
  const std::shared_ptr<ShmStream::Host> host_;
  const std::shared_ptr<ShmThread> thread_;
  ShmLink peer_;
};

TEST_F(HostilePeerTest, ImpossibleWritePositionEndsTheStream) {
  const auto victim = Victim();
  FrameHead head;
  head.kind = FrameHead::kMessage;  // an empty message, which must not arrive
  Write(&head, sizeof(head), kShmStreamRing + 1);
  ExpectEnd(victim.get(), absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, ImpossibleReadPositionEndsTheStream) {
  const auto victim = Victim();
  peer_.control(false)->read.store(12345);
  victim->Send("answer");
  ExpectEnd(victim.get(), absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, UnknownFramesEndTheStream) {
  const auto victim = Victim();
  FrameHead head;
  head.kind = 77;
  Write(&head, sizeof(head), sizeof(head));
  ExpectEnd(victim.get(), absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, AnEndFrameWithBytesEndsTheStreamUncleanly) {
  const auto victim = Victim();
  FrameHead head;
  head.kind = FrameHead::kEnd;
  head.bytes = 1;
  Write(&head, sizeof(head), sizeof(head));
  ExpectEnd(victim.get(), absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, LongerMessagesThanAllowedEndTheStream) {
  const auto victim = Victim();
  FrameHead head;
  head.kind = FrameHead::kMessage;
  head.bytes = uint64_t{1} << 62;
  Write(&head, sizeof(head), sizeof(head));
  ExpectEnd(victim.get(), absl::StatusCode::kResourceExhausted);
}

TEST_F(HostilePeerTest, UnknownPacketsEndTheStream) {
  const auto victim = Victim();
  SendPacket("e\x0esomething");  // only a server may end a stream so
  ExpectEnd(victim.get(), absl::StatusCode::kDataLoss);
}

TEST_F(HostilePeerTest, AMessageThatIsCutShortEndsWithItsPeer) {
  const auto victim = Victim();
  FrameHead head;
  head.kind = FrameHead::kMessage;
  head.bytes = 100000;
  Write(&head, sizeof(head), sizeof(head) + 500);
  peer_ = ShmLink();
  ExpectEnd(victim.get(), absl::StatusCode::kUnavailable);
}

TEST_F(HostilePeerTest, MemoryThatIsWrittenForEverDoesNotOutliveItsSocket) {
  const auto victim = Victim();
  std::atomic<bool> stop{false};
  SealedMemory kept = *SealedMemory::Map(FileDescriptor(dup(peer_.memory.fd())),
                                         ShmLink::MemoryBytes(kShmStreamRing));
  auto* const control = reinterpret_cast<RingControl*>(kept.data());
  std::thread writer([&] {
    // Empty messages all over the ring.
    FrameHead head;
    head.kind = FrameHead::kMessage;
    for (size_t at = 0; at < kShmStreamRing; at += sizeof(head))
      std::memcpy(kept.data() + ShmLink::kDataOffset + at, &head, sizeof(head));
    while (!stop) control->written.store(control->read.load() + kShmStreamRing);
  });
  peer_ = ShmLink();
  EXPECT_TRUE(victim->AwaitFinished());
  stop = true;
  writer.join();
}

TEST_F(HostilePeerTest, FloodsOfPacketsDoNotKeepOtherStreamsFromTheirTurn) {
  LinkPair other(kShmStreamRing);
  RecordedStream honest_server(ShmStream::Side::kServer, std::move(other.server), host_, thread_);
  RecordedStream honest_client(ShmStream::Side::kClient, std::move(other.client), host_, thread_);
  const auto victim = Victim();
  std::atomic<bool> stop{false};
  std::thread flood([&] {
    while (!stop) SendPacket("p");
  });
  for (int i = 1; i <= 20; ++i) {
    honest_client.Send("x");
    EXPECT_TRUE(honest_server.AwaitMessages(i));
  }
  stop = true;
  flood.join();
}

// Whatever the peer writes, the stream can be ended, and its thread serves others.
TEST(HostilePeerFuzzTest, RandomBytesAndPositionsAreSurvived) {
  const auto host = HostForTest();
  host->keepalive_time = host->keepalive_timeout = absl::Milliseconds(50);
  const auto thread = std::make_shared<ShmThread>(absl::Milliseconds(5));
  // Before the last stream, which may end on the thread, lets go of it.
  const absl::Cleanup stop = [&] { thread->Stop(); };
  for (uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    std::mt19937_64 random(seed);
    LinkPair links(kShmStreamRing);
    RecordedStream victim(seed % 2 == 0 ? ShmStream::Side::kServer : ShmStream::Side::kClient,
                          std::move(links.server), host, thread);
    ShmLink& peer = links.client;
    for (int step = 0; step < 200; ++step) {
      RingControl* const control = peer.control(random() % 2 == 0);
      uint8_t* const data = peer.data(random() % 2 == 0);
      switch (random() % 8) {
        case 0:  // a frame that may be right
        case 1: {
          FrameHead head;
          head.kind = random() % 3;
          head.bytes = random() % 300;
          std::memcpy(data + random() % 64 * sizeof(head), &head, sizeof(head));
          break;
        }
        case 2:
          for (size_t i = 0; i < kShmStreamRing; i += 8) std::memcpy(data + i, &step, sizeof(step));
          break;
        case 3:
          control->written.store(control->read.load() + random() % kShmStreamRing);
          break;
        case 4:
          control->read.store(control->written.load() - random() % kShmStreamRing);
          break;
        case 5:
          control->reader_sleeps.store(random() % 3);
          control->writer_waits.store(random() % 3);
          break;
        case 6:
          victim.Send(std::string(random() % 20000, 'x'));
          break;
        default: {
          if (random() % 4 == 0) {
            (random() % 2 == 0 ? control->written : control->read).store(random());
          }
          const std::string packets = "wwwwppoe";
          std::string packet(1, packets[random() % packets.size()]);
          packet.resize(1 + random() % 3, 'z');
          send(peer.socket.fd(), packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        }
      }
    }
    if (random() % 2 == 0) peer = ShmLink();
  }
  LinkPair links(kShmStreamRing);
  const auto patient = HostForTest();
  RecordedStream server(ShmStream::Side::kServer, std::move(links.server), patient, thread);
  RecordedStream client(ShmStream::Side::kClient, std::move(links.client), patient, thread);
  client.Send("still there");
  EXPECT_TRUE(server.AwaitMessages(1));
}

}  // namespace
}  // namespace sluice
