#include "common/collective/shm_rendezvous.h"

#include <memory>
#include <thread>

#include "gtest/gtest.h"

namespace sluice {
namespace {

CollectiveOptions WithTimeout(absl::Duration timeout) {
  CollectiveOptions options;
  options.timeout = timeout;
  return options;
}

struct Ranks {
  explicit Ranks(uint32_t n, absl::Duration timeout = absl::Seconds(30)) {
    for (uint32_t r = 0; r < n; ++r) {
      sides.push_back(std::make_unique<ShmRendezvous>(WithTimeout(timeout)));
      cards.push_back(*sides.back()->Listen(1, r, n));
    }
  }
  std::vector<std::unique_ptr<ShmRendezvous>> sides;
  std::vector<CollectiveCard> cards;
};

TEST(ShmRendezvousTest, RanksShareMemoryAndAreConnectedToEachOther) {
  Ranks ranks(3);
  std::vector<absl::StatusOr<ShmRendezvous::Group>> groups(3);
  std::vector<std::thread> threads;
  for (int r = 0; r < 3; ++r)
    threads.emplace_back([&, r] { groups[r] = ranks.sides[r]->Join(ranks.cards); });
  for (std::thread& thread : threads) thread.join();
  for (int r = 0; r < 3; ++r) {
    ASSERT_TRUE(groups[r].ok()) << groups[r].status();
    for (int other = 0; other < 3; ++other)
      EXPECT_EQ(static_cast<bool>(groups[r]->connections[other]), other != r);
  }
  groups[1]->memory.data()[77] = 5;
  EXPECT_EQ(groups[2]->memory.data()[77], 5);
  EXPECT_EQ(groups[0]->memory.size(), groups[2]->layout.total_bytes());
}

// A process that shows `hello` to rank 0; returns what rank 0 answers.
CollectiveWelcome Visit(const CollectiveCard& card, const CollectiveHello& hello) {
  CollectiveWelcome welcome;
  auto connection = UnixConnection::Connect(card.socket());
  if (!connection.ok() || !connection->Send(hello.SerializeAsString()).ok()) return welcome;
  const auto packet = connection->Receive(absl::Seconds(60));
  if (packet.ok()) {
    EXPECT_TRUE(packet->descriptors.empty());
    welcome.ParseFromString(packet->bytes);
  }
  return welcome;
}

TEST(ShmRendezvousTest, OnlyMissingRanksOfThisGenerationAreLetIn) {
  Ranks ranks(2);
  absl::Status joined;
  std::thread join([&] { joined = ranks.sides[0]->Join(ranks.cards).status(); });
  std::vector<std::thread> visitors;
  CollectiveHello hello;
  hello.set_generation(1);
  hello.set_rank(1);
  hello.set_nonce(std::string(16, 'x'));  // of another generation
  visitors.emplace_back([&, hello] { EXPECT_NE(Visit(ranks.cards[0], hello).refusal(), ""); });
  hello.set_nonce(ranks.cards[0].nonce());
  hello.set_generation(2);
  visitors.emplace_back([&, hello] { EXPECT_NE(Visit(ranks.cards[0], hello).refusal(), ""); });
  hello.set_generation(1);
  hello.set_rank(0);
  visitors.emplace_back([&, hello] { EXPECT_NE(Visit(ranks.cards[0], hello).refusal(), ""); });
  hello.set_rank(7);
  visitors.emplace_back([&, hello] { EXPECT_NE(Visit(ranks.cards[0], hello).refusal(), ""); });
  // One that says nothing delays nobody.
  auto silent = UnixConnection::Connect(ranks.cards[0].socket());
  for (std::thread& visitor : visitors) visitor.join();
  ranks.sides[0]->Cancel();
  join.join();
  EXPECT_EQ(joined.code(), absl::StatusCode::kCancelled) << joined;
}

TEST(ShmRendezvousTest, TheOldestOfTooManyStrangersMakesRoom) {
  Ranks ranks(2);
  absl::StatusOr<ShmRendezvous::Group> first, second;
  std::thread join([&] { first = ranks.sides[0]->Join(ranks.cards); });
  std::vector<UnixConnection> strangers;
  for (size_t i = 0; i < 3 * kMaxStrangers; ++i) {
    auto stranger = UnixConnection::Connect(ranks.cards[0].socket());
    // The queue of the kernel is full for a moment.
    for (int tries = 0; !stranger.ok() && tries < 60'000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      stranger = UnixConnection::Connect(ranks.cards[0].socket());
    }
    ASSERT_TRUE(stranger.ok()) << stranger.status();
    strangers.push_back(*std::move(stranger));
  }
  // The first one is closed although the rank that is missing has not come.
  EXPECT_EQ(strangers[0].Receive(absl::Seconds(60)).status().code(),
            absl::StatusCode::kUnavailable);
  second = ranks.sides[1]->Join(ranks.cards);
  join.join();
  EXPECT_TRUE(first.ok()) << first.status();
  EXPECT_TRUE(second.ok()) << second.status();
}

TEST(ShmRendezvousTest, ARankThatHasLeftIsNamed) {
  Ranks ranks(2);
  ranks.sides[0]->Leave();
  const absl::Status status = ranks.sides[1]->Join(ranks.cards).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_EQ(RankAtFault(status), 0u);
}

TEST(ShmRendezvousTest, CancelEndsJoin) {
  Ranks ranks(2);
  ranks.sides[0]->Cancel();
  EXPECT_EQ(ranks.sides[0]->Join(ranks.cards).status().code(), absl::StatusCode::kCancelled);
}

TEST(ShmLayoutTest, PiecesFillTheMemoryWithoutOverlap) {
  for (const uint32_t ranks : {1u, 2u, 5u, 256u}) {
    const ShmLayout layout = ShmLayout::ForChunks(256 << 10, ranks);
    ASSERT_TRUE(layout.Check().ok());
    size_t at = layout.board_bytes();
    for (uint32_t slot = 0; slot < layout.slots; ++slot)
      for (uint32_t from = 0; from < ranks; ++from)
        for (uint32_t of = 0; of < ranks; ++of, at += layout.piece_bytes)
          ASSERT_EQ(layout.PieceOffset(slot, from, of), at);
    EXPECT_EQ(at, layout.total_bytes());
  }
  EXPECT_FALSE(ShmLayout::ForChunks(256 << 10, 257).Check().ok());
  ShmLayout odd = ShmLayout::ForChunks(256 << 10, 2);
  odd.piece_bytes = 100;
  EXPECT_FALSE(odd.Check().ok());
}

}  // namespace
}  // namespace sluice
