#include "common/collective/gloo_pair.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
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

// Rank 0 of a group of two over Gloo. The test plays rank 1, with bytes of its own.
class GroupWithATest {
 public:
  explicit GroupWithATest(absl::Duration timeout) {
    CollectiveOptions options = OptionsOfRank("gloo", {}, 0, {});
    options.timeout = timeout;
    rank0_ = *MakeCollective("gloo", options);
    rank1_.emplace(options);
  }

  Collective& rank0() { return *rank0_; }
  // Both ranks join; returns rank 1's connection.
  FileDescriptor Join() {
    ++generation_;
    CollectiveCard card = NewCard("gloo", generation_, 1, 2, "host"), card_of_rank0;
    const std::string listens = *rank0_->Listen(generation_, 0, 2);
    EXPECT_TRUE(card_of_rank0.ParseFromString(listens));
    card.set_address(*rank1_->Listen());
    absl::StatusOr<std::vector<FileDescriptor>> joined;
    std::thread joins([&] { joined = rank1_->Join(card, {card_of_rank0, card}); });
    EXPECT_TRUE(rank0_->Join(generation_, {listens, card.SerializeAsString()}, 0).ok());
    joins.join();
    EXPECT_TRUE(joined.ok()) << joined.status();
    return joined.ok() ? std::move((*joined)[0]) : FileDescriptor();
  }

 private:
  uint64_t generation_ = 0;
  std::unique_ptr<Collective> rank0_;
  std::optional<TcpRendezvous> rank1_;
};

void Say(const FileDescriptor& connection, const std::string& bytes) {
  (void)send(connection.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
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
  GroupWithATest group(absl::Seconds(5));
  for (const std::string& bytes : attacks) {
    const FileDescriptor rank1 = group.Join();
    Say(rank1, bytes);
    shutdown(rank1.get(), SHUT_WR);
    EXPECT_FALSE(group.rank0().Barrier().ok());
  }
}

// At once: DEADLINE_EXCEEDED would mean only at the timeout.
TEST(GlooPairTest, ARankThatEndsInTheMiddleOfValuesIsNoticed) {
  if (!CanMake("gloo", 2)) GTEST_SKIP() << "this build has no Gloo";
  GroupWithATest group(absl::Seconds(20));
  FileDescriptor rank1 = group.Join();
  const std::string message = GlooMessage(BarrierHeader());
  Say(rank1, message.substr(0, message.size() - 1));
  shutdown(rank1.get(), SHUT_WR);
  EXPECT_TRUE(absl::IsUnavailable(group.rank0().Barrier()));

  // More than the buffers of the connection hold.
  std::vector<uint8_t> values(64 << 20);
  rank1 = group.Join();
  Say(rank1, GlooNotice(GlooPreamble::kReceiveReady, kGlooMessageSlot, sizeof(GlooPeers::Message)) +
                 GlooMessage(BroadcastHeader(values.size(), 0)) +
                 GlooNotice(GlooPreamble::kReceiveReady, kGlooResultSlot, values.size()));
  std::thread ends([&] {
    char part[4096];
    pollfd state = {rank1.get(), POLLIN, 0};
    for (size_t got = 0; got < 1 << 20 && poll(&state, 1, 20000) == 1;)
      got += std::max<ssize_t>(0, recv(rank1.get(), part, sizeof(part), 0));
    rank1 = FileDescriptor();
  });
  EXPECT_TRUE(absl::IsUnavailable(group.rank0().Broadcast(absl::MakeSpan(values), 0)));
  ends.join();
}

}  // namespace
}  // namespace sluice
