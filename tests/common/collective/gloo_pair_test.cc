#include "common/collective/gloo_pair.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/collective/tcp_rendezvous.h"
#include "gtest/gtest.h"
#include "tests/common/collective/gloo_messages.h"
#include "tests/common/collective/rank_threads.h"
#include "tests/common/collective/tcp_strangers.h"

namespace sluice {
namespace {

std::string AddressIn(const std::string& card) {
  CollectiveCard parsed;
  EXPECT_TRUE(parsed.ParseFromString(card));
  if (parsed.engine() == "two_level") return AddressIn(parsed.between());
  return parsed.address();
}

// Connects again and again; some say nothing, some send bytes.
class Strangers {
 public:
  explicit Strangers(const std::vector<std::string>& cards) {
    for (uint32_t seed = 0; seed < 4; ++seed)
      threads_.emplace_back([this, seed, cards] { Bother(seed, cards); });
  }
  ~Strangers() {
    done_ = true;
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void Bother(uint32_t seed, const std::vector<std::string>& cards) {
    std::mt19937_64 random(seed);
    std::vector<FileDescriptor> open(50);
    while (!done_) {
      FileDescriptor stranger = ConnectAsStranger(AddressIn(cards[random() % cards.size()]));
      if (!stranger) continue;
      std::string bytes(random() % 3 * 100, '\0');
      for (char& byte : bytes) byte = static_cast<char>(random());
      (void)send(stranger.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      open[random() % open.size()] = std::move(stranger);
    }
  }
  std::atomic<bool> done_{false};
  std::vector<std::thread> threads_;
};

TEST(GlooPairTest, StrangersEndNeitherTheProcessNorTheGroup) {
  if (!CanMake("gloo", 2)) GTEST_SKIP() << "this build has no Gloo";
  for (const char* engine : {"gloo", "auto", "two_level"}) {
    RankThreads group(engine, 3, {}, {"a", "b", "a"});
    const std::vector<std::string> cards = group.Listen(1);
    {
      Strangers strangers(cards);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      group.ExpectOk([&](uint32_t r, Collective& c) { return c.Join(1, cards, r); });
      group.ExpectOk([&](uint32_t, Collective& c) {
        std::vector<float> values(100000, 1.0f);
        const absl::Status status = c.AllReduce(absl::MakeSpan(values), Collective::Op::kSum);
        EXPECT_EQ(values[99999], 3.0f);
        return status;
      });
    }
    for (const std::string& card : cards) EXPECT_FALSE(ConnectAsStranger(AddressIn(card)));
  }
}

// Rank 0 of a group over Gloo. The test plays the others, with bytes of its own.
class GroupWithATest {
 public:
  GroupWithATest(uint32_t ranks, absl::Duration timeout) {
    CollectiveOptions options = OptionsOfRank("gloo", {}, 0, {});
    options.timeout = timeout;
    rank0_ = *MakeCollective("gloo", options);
    for (uint32_t rank = 1; rank < ranks; ++rank)
      others_.push_back(std::make_unique<TcpRendezvous>(options));
  }

  Collective& rank0() { return *rank0_; }
  // All ranks join. Returns the connections of the others with rank 0, from that of rank 1 on.
  std::vector<FileDescriptor> Join() {
    ++generation_;
    const auto ranks = static_cast<uint32_t>(others_.size() + 1);
    std::vector<std::string> listens = {*rank0_->Listen(generation_, 0, ranks)};
    std::vector<CollectiveCard> cards(ranks);
    EXPECT_TRUE(cards[0].ParseFromString(listens[0]));
    for (uint32_t rank = 1; rank < ranks; ++rank) {
      cards[rank] = NewCard("gloo", generation_, rank, ranks, "host");
      cards[rank].set_address(*others_[rank - 1]->Listen());
      listens.push_back(cards[rank].SerializeAsString());
    }
    std::vector<FileDescriptor> connections(others_.size());
    std::vector<std::thread> joins;
    for (uint32_t rank = 1; rank < ranks; ++rank) {
      joins.emplace_back([&, rank] {
        auto joined = others_[rank - 1]->Join(cards[rank], cards);
        ASSERT_TRUE(joined.ok()) << joined.status();
        connections[rank - 1] = std::move((*joined)[0]);
      });
    }
    EXPECT_TRUE(rank0_->Join(generation_, listens, 0).ok());
    for (std::thread& join : joins) join.join();
    return connections;
  }

 private:
  uint64_t generation_ = 0;
  std::unique_ptr<Collective> rank0_;
  std::vector<std::unique_ptr<TcpRendezvous>> others_;
};

void Say(const FileDescriptor& connection, const std::string& bytes) {
  (void)send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Reads at least so many bytes, or all until the end of the connection.
std::string Hear(const FileDescriptor& connection, size_t least) {
  std::string bytes;
  std::vector<char> part(64 << 10);
  pollfd state = {connection.get(), POLLIN, 0};
  while (bytes.size() < least && poll(&state, 1, 20000) == 1) {
    const ssize_t size = recv(connection.get(), part.data(), part.size(), 0);
    if (size <= 0) break;
    bytes.append(part.data(), static_cast<size_t>(size));
  }
  return bytes;
}

// Bytes of a rank that is ready for all that another one may send in a broadcast from rank 0.
std::string ReadyForBroadcast(size_t bytes) {
  return GlooNotice(GlooPreamble::kReceiveReady, kGlooLastWordsSlot, sizeof(OperationHeader)) +
         GlooNotice(GlooPreamble::kReceiveReady, kGlooMessageSlot, sizeof(GlooPeers::Message)) +
         GlooMessage(BroadcastHeader(bytes, 0)) +
         GlooNotice(GlooPreamble::kReceiveReady, kGlooResultSlot, bytes);
}

TEST(GlooPairTest, MalformedBytesOfARankEndTheGroupButNotTheProcess) {
  if (!CanMake("gloo", 2)) GTEST_SKIP() << "this build has no Gloo";
  std::vector<std::string> attacks;
  for (const uint64_t slot : {0, 1, 2, 77}) {
    for (uint64_t opcode = 0; opcode < 5; ++opcode) {
      for (const uint64_t length : {uint64_t{0}, uint64_t{500}, ~uint64_t{0}}) {
        attacks.push_back(GlooNotice(static_cast<GlooPreamble::Opcode>(opcode), slot, length) +
                          std::string(1000, 'x'));
      }
    }
  }
  attacks.emplace_back(5000, '\xff');
  GroupWithATest group(2, absl::Seconds(5));
  for (const std::string& bytes : attacks) {
    const FileDescriptor rank1 = std::move(group.Join()[0]);
    Say(rank1, bytes);
    shutdown(rank1.get(), SHUT_WR);
    EXPECT_FALSE(group.rank0().Barrier().ok());
  }
}

// DEADLINE_EXCEEDED would mean that the loss was noticed only at the timeout.
TEST(GlooPairTest, ARankThatEndsInTheMiddleOfValuesIsNoticed) {
  if (!CanMake("gloo", 2)) GTEST_SKIP() << "this build has no Gloo";
  GroupWithATest group(2, absl::Seconds(20));
  FileDescriptor rank1 = std::move(group.Join()[0]);
  const std::string message = GlooMessage(BarrierHeader());
  Say(rank1, message.substr(0, message.size() - 1));
  std::thread ends([&] {
    // The two receives of rank 0, and the notice of its message: then it awaits that of rank 1.
    EXPECT_GE(Hear(rank1, 3 * sizeof(GlooPreamble)).size(), 3 * sizeof(GlooPreamble));
    shutdown(rank1.get(), SHUT_WR);
  });
  EXPECT_TRUE(absl::IsUnavailable(group.rank0().Barrier()));
  ends.join();

  // More than the buffers of the connection hold.
  std::vector<uint8_t> values(64 << 20);
  rank1 = std::move(group.Join()[0]);
  Say(rank1, ReadyForBroadcast(values.size()));
  ends = std::thread([&] {
    Hear(rank1, 1 << 20);
    rank1 = FileDescriptor();
  });
  EXPECT_TRUE(absl::IsUnavailable(group.rank0().Broadcast(absl::MakeSpan(values), 0)));
  ends.join();
}

TEST(GlooPairTest, LastWordsFollowValuesThatAreOnTheirWay) {
  if (!CanMake("gloo", 3)) GTEST_SKIP() << "this build has no Gloo";
  GroupWithATest group(3, absl::Seconds(20));
  std::vector<FileDescriptor> ranks = group.Join();
  std::vector<uint8_t> values(16 << 20);
  for (const FileDescriptor& rank : ranks) Say(rank, ReadyForBroadcast(values.size()));
  std::string heard;
  std::thread others([&] {
    Hear(ranks[0], 1 << 20);
    ranks[0] = FileDescriptor();
    heard = Hear(ranks[1], ~size_t{0});
  });
  EXPECT_TRUE(absl::IsUnavailable(group.rank0().Broadcast(absl::MakeSpan(values), 0)));
  others.join();
  ASSERT_GT(heard.size(), values.size());
  OperationHeader words;
  std::memcpy(&words, &heard[heard.size() - sizeof(words)], sizeof(words));
  EXPECT_EQ(words.kind, OperationHeader::kFailed);
  EXPECT_EQ(words.root, 1);
}

}  // namespace
}  // namespace sluice
