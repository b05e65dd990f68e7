#include "common/shm_transport/byte_ring.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"

namespace sluice {
namespace {

constexpr size_t kCapacity = 4096;

// A ring in private memory, with both ends.
struct Ring {
  RingControl control{};
  std::vector<uint8_t> data = std::vector<uint8_t>(kCapacity);
  RingWriter writer{&control, data.data(), kCapacity};
  RingReader reader{&control, data.data(), kCapacity};

  void Write(const std::string& text) {
    writer.Write(reinterpret_cast<const uint8_t*>(text.data()), text.size());
  }
  std::string Read(size_t n) {
    std::string text(n, '\0');
    reader.Read(reinterpret_cast<uint8_t*>(&text[0]), n);
    return text;
  }
};

TEST(ByteRingTest, BytesPassInOrderAcrossTheEndOfTheMemory) {
  Ring ring;
  std::mt19937 random(1);
  std::string sent, received;
  while (received.size() < 100000) {
    std::string piece(random() % (*ring.writer.Room() + 1), '\0');
    for (char& c : piece) c = static_cast<char>(random());
    ring.Write(piece);
    ring.writer.Publish();
    sent += piece;
    received += ring.Read(random() % (*ring.reader.Available() + 1));
    ring.reader.Publish();
  }
  EXPECT_TRUE(sent.substr(0, received.size()) == received);
}

TEST(ByteRingTest, PeekFindsTheBytesInPlaceAndSkipGivesThemUp) {
  Ring ring;
  ring.Write(std::string(kCapacity - 3, 'x'));
  ring.writer.Publish();
  ring.reader.Skip(kCapacity - 3);
  ring.reader.Publish();
  ring.Write("abcdefg");
  ring.writer.Publish();
  const auto text = [](const RingReader::Piece& piece) {
    return std::string(reinterpret_cast<const char*>(piece.data), piece.size);
  };
  const auto straight = ring.reader.Peek(3);
  EXPECT_EQ(text(straight[0]), "abc");
  EXPECT_EQ(straight[1].size, 0u);
  const auto wrapped = ring.reader.Peek(7);
  EXPECT_EQ(text(wrapped[0]), "abc");
  EXPECT_EQ(text(wrapped[1]), "defg");
  EXPECT_EQ(wrapped[1].data, ring.data.data());
  EXPECT_EQ(*ring.writer.Room(), kCapacity - 7);
  ring.reader.Skip(5);
  EXPECT_EQ(*ring.writer.Room(), kCapacity - 7) << "not yet published";
  ring.reader.Publish();
  EXPECT_EQ(*ring.writer.Room(), kCapacity - 2);
  EXPECT_EQ(ring.Read(2), "fg");
}

TEST(ByteRingTest, TheReaderSeesOnlyWhatIsPublished) {
  Ring ring;
  ring.Write("unseen");
  EXPECT_EQ(*ring.reader.Available(), 0u);
  ring.writer.Publish();
  EXPECT_EQ(*ring.reader.Available(), 6u);
}

TEST(ByteRingTest, TheWriterGetsRoomOnlyWhenReadingIsPublished) {
  Ring ring;
  ring.Write(std::string(kCapacity, 'x'));
  ring.writer.Publish();
  EXPECT_EQ(*ring.writer.Room(), 0u);
  ring.Read(100);
  EXPECT_EQ(*ring.writer.Room(), 0u);
  ring.reader.Publish();
  EXPECT_EQ(*ring.writer.Room(), 100u);
}

TEST(ByteRingTest, AnAnnouncedSleepIsReportedOnce) {
  Ring ring;
  EXPECT_FALSE(ring.writer.Publish());
  ring.reader.AnnounceSleep();
  EXPECT_TRUE(ring.writer.Publish());
  EXPECT_FALSE(ring.writer.Publish());
  ring.reader.AnnounceSleep();
  ring.reader.CancelSleep();
  EXPECT_FALSE(ring.writer.Publish());
}

TEST(ByteRingTest, AWaitingWriterIsReportedOnceHalfOfTheRingIsFree) {
  Ring ring;
  ring.Write(std::string(kCapacity, 'x'));
  ring.writer.Publish();
  ring.writer.AnnounceWait();
  ring.Read(kCapacity / 2 - 1);
  EXPECT_FALSE(ring.reader.Publish());
  ring.Read(1);
  EXPECT_TRUE(ring.reader.Publish());
  ring.Read(1);
  EXPECT_FALSE(ring.reader.Publish());
}

TEST(ByteRingTest, ImpossiblePositionsAreNoticed) {
  Ring ring;
  for (const uint64_t written : {uint64_t{kCapacity} + 1, ~uint64_t{0}, uint64_t{1} << 63}) {
    ring.control.written.store(written);
    EXPECT_EQ(ring.reader.Available().status().code(), absl::StatusCode::kDataLoss) << written;
  }
  for (const uint64_t read : {uint64_t{1}, ~uint64_t{0} - kCapacity}) {
    ring.control.read.store(read);
    EXPECT_EQ(ring.writer.Room().status().code(), absl::StatusCode::kDataLoss) << read;
  }
}

// Both ends sleep whenever they find nothing to do, and only a wake-up ends a sleep. A lost wake-up
// would leave both asleep.
TEST(ByteRingTest, NoWakeUpIsLost) {
  struct Sleeper {
    Mutex mutex;
    CondVar changed;
    bool woken = false;
    void Wake() {
      MutexLock lock(&mutex);
      woken = true;
      changed.NotifyAll();
    }
    bool Sleep() {
      MutexLock lock(&mutex);
      while (!woken) {
        if (!changed.WaitFor(&mutex, std::chrono::seconds(20)) && !woken) return false;
      }
      woken = false;
      return true;
    }
  };
  Ring ring;
  Sleeper reader_asleep, writer_asleep;
  constexpr size_t kTotal = 3 << 20;
  const auto byte_at = [](size_t i) { return static_cast<uint8_t>(i * 131 >> 3); };
  std::thread writing([&] {
    std::mt19937 random(2);
    for (size_t done = 0; done < kTotal;) {
      size_t room = *ring.writer.Room();
      if (room == 0) {
        ring.writer.AnnounceWait();
        room = *ring.writer.Room();
      }
      if (room == 0) {
        ASSERT_TRUE(writer_asleep.Sleep());
        continue;
      }
      const size_t n = std::min({room, kTotal - done, size_t{1 + random() % 600}});
      for (size_t i = 0; i < n; ++i) {
        const uint8_t byte = byte_at(done + i);
        ring.writer.Write(&byte, 1);
      }
      if (ring.writer.Publish()) reader_asleep.Wake();
      done += n;
    }
  });
  std::mt19937 random(3);
  for (size_t done = 0; done < kTotal;) {
    size_t available = *ring.reader.Available();
    if (available == 0) {
      ring.reader.AnnounceSleep();
      available = *ring.reader.Available();
    }
    if (available == 0) {
      ASSERT_TRUE(reader_asleep.Sleep());
      continue;
    }
    const size_t n = std::min(available, size_t{1 + random() % 600});
    for (size_t i = 0; i < n; ++i) {
      uint8_t byte;
      ring.reader.Read(&byte, 1);
      ASSERT_EQ(byte, byte_at(done + i)) << done + i;
    }
    if (ring.reader.Publish()) writer_asleep.Wake();
    done += n;
  }
  writing.join();
}

}  // namespace
}  // namespace sluice
