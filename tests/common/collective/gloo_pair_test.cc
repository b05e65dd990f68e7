#include "common/collective/gloo_pair.h"

#include <atomic>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "common/collective/tcp_rendezvous.h"
#include "gtest/gtest.h"
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

// What Gloo puts before values.
struct Preamble {
  uint64_t bytes = sizeof(Preamble), opcode = 0, slot = 0, offset = 0, length = 0, roffset = 0;
};

TEST(GlooPairTest, MalformedBytesOfARankEndTheGroupButNotTheProcess) {
  if (!CanMake("gloo", 2)) GTEST_SKIP() << "this build has no Gloo";
  CollectiveOptions options = OptionsOfRank("gloo", {}, 0, {});
  options.timeout = absl::Seconds(5);
  std::vector<std::string> attacks;
  const auto attack = [&](uint64_t opcode, uint64_t slot, uint64_t length) {
    Preamble preamble;
    preamble.opcode = opcode;
    preamble.slot = slot;
    preamble.length = length;
    attacks.emplace_back(reinterpret_cast<const char*>(&preamble), sizeof(preamble));
    attacks.back().append(1000, 'x');
  };
  for (const uint64_t slot : {0, 1, 2, 77}) {
    for (uint64_t opcode = 0; opcode < 5; ++opcode) {
      attack(opcode, slot, 0);
      attack(opcode, slot, 500);
      attack(opcode, slot, ~uint64_t{0});
    }
  }
  attacks.emplace_back(5000, '\xff');
  uint64_t generation = 0;
  auto rank0 = *MakeCollective("gloo", options);
  for (const std::string& bytes : attacks) {
    ++generation;
    std::vector<std::string> cards = {*rank0->Listen(generation, 0, 2)};
    TcpRendezvous rank1(options);
    CollectiveCard card = NewCard("gloo", generation, 1, 2, "host");
    card.set_address(*rank1.Listen());
    cards.push_back(card.SerializeAsString());
    CollectiveCard of_rank0;
    ASSERT_TRUE(of_rank0.ParseFromString(cards[0]));
    absl::StatusOr<std::vector<FileDescriptor>> joined;
    std::thread attacker([&] {
      joined = rank1.Join(card, {of_rank0, card});
      if (!joined.ok()) return;
      (void)send((*joined)[0].get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      shutdown((*joined)[0].get(), SHUT_WR);
    });
    EXPECT_TRUE(rank0->Join(generation, cards, 0).ok());
    attacker.join();
    ASSERT_TRUE(joined.ok()) << joined.status();
    EXPECT_FALSE(rank0->Barrier().ok());
  }
}

}  // namespace
}  // namespace sluice
