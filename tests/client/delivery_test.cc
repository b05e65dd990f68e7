// Delivery against a random network and a plain reference: each part applied exactly once, in
// order.
#include "client/delivery.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <random>
#include <string>

namespace sluice {
namespace {

using Send = Delivery::Send;
using Error = Delivery::Error;

std::vector<Send> DrainAll(Delivery* delivery, uint32_t pserver) {
  std::vector<Send> sends;
  while (auto send = delivery->Next(pserver)) sends.push_back(*std::move(send));
  return sends;
}

TEST(DeliveryTest, AllShardsOfAPserverGoInOneSend) {
  Delivery delivery({0, 1, 0, 1});
  delivery.Add(1);
  EXPECT_FALSE(delivery.Next(0).has_value()) << "the stream is closed";
  delivery.OnOpen(0);
  delivery.OnOpen(1);
  const auto to0 = DrainAll(&delivery, 0), to1 = DrainAll(&delivery, 1);
  ASSERT_EQ(to0.size(), 1u);
  ASSERT_EQ(to1.size(), 1u);
  EXPECT_EQ(to0[0].shards, (std::vector<uint32_t>{0, 2}));
  EXPECT_EQ(to1[0].shards, (std::vector<uint32_t>{1, 3}));
  ASSERT_TRUE(delivery.OnReply(to0[0], {}).ok());
  EXPECT_EQ(delivery.released(), 0u);
  EXPECT_EQ(delivery.SlowestPserver(), 1u);
  ASSERT_TRUE(delivery.OnReply(to1[0], {}).ok());
  EXPECT_EQ(delivery.released(), 1u);
}

TEST(DeliveryTest, OutOfOrderPartsAreSentAgainFromTheOneAfterLast) {
  Delivery delivery({0, 0});
  for (int s = 1; s <= 3; ++s) delivery.Add(s);
  delivery.OnOpen(0);
  const auto first = DrainAll(&delivery, 0);
  ASSERT_EQ(first.size(), 3u);
  ASSERT_TRUE(delivery.OnReply(first[2], {{1, PART_OUT_OF_ORDER, 1}}).ok());
  const auto again = DrainAll(&delivery, 0);
  ASSERT_EQ(again.size(), 2u);
  EXPECT_EQ(again[0].sequence, 2u);
  EXPECT_EQ(again[1].sequence, 3u);
  EXPECT_EQ(again[0].shards, std::vector<uint32_t>{1});
  // The refusal of an older send says nothing new.
  ASSERT_TRUE(delivery.OnReply(first[1], {{1, PART_OUT_OF_ORDER, 0}}).ok());
  EXPECT_TRUE(DrainAll(&delivery, 0).empty());
}

TEST(DeliveryTest, WrongShardWaitsForARouteAndGoesToTheNewOwnerInOrder) {
  Delivery delivery({0, 0});
  delivery.Add(1);
  delivery.OnOpen(0);
  delivery.OnOpen(1);
  const auto first = DrainAll(&delivery, 0);
  ASSERT_TRUE(delivery.OnReply(first[0], {{1, PART_WRONG_SHARD, 0}}).ok());
  EXPECT_TRUE(delivery.needs_route());
  delivery.Add(2);
  const auto second = DrainAll(&delivery, 0);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].shards, std::vector<uint32_t>{0}) << "shard 1 waits";
  delivery.OnRoute({0, 1});
  EXPECT_FALSE(delivery.needs_route());
  const auto moved = DrainAll(&delivery, 1);
  ASSERT_EQ(moved.size(), 2u);
  EXPECT_EQ(moved[0].sequence, 1u);
  EXPECT_EQ(moved[1].sequence, 2u);
}

TEST(DeliveryTest, ReconnectSendsEverythingNotAcknowledgedInOrder) {
  Delivery delivery({0});
  delivery.Add(7);  // a sync worker that begins at step 6
  delivery.Add(8);
  delivery.OnOpen(0);
  auto sends = DrainAll(&delivery, 0);
  ASSERT_TRUE(delivery.OnReply(sends[0], {}).ok());
  delivery.OnBroken(0);
  delivery.Add(9);
  EXPECT_TRUE(DrainAll(&delivery, 0).empty());
  delivery.OnOpen(0);
  sends = DrainAll(&delivery, 0);
  ASSERT_EQ(sends.size(), 2u);
  EXPECT_EQ(sends[0].sequence, 8u);
  EXPECT_EQ(sends[1].sequence, 9u);
}

TEST(DeliveryTest, EndsWithAStatusThatSaysWhy) {
  auto status_of = [](PartStatus part, uint64_t last) {
    Delivery delivery({0});
    delivery.Add(5);
    delivery.Add(6);
    delivery.OnOpen(0);
    DrainAll(&delivery, 0);
    return delivery.OnReply({2, 6, {0}}, {{0, part, last}}).code();
  };
  EXPECT_EQ(status_of(PART_STALE_INCARNATION, 0), absl::StatusCode::kAborted);
  EXPECT_EQ(status_of(PART_NOT_FINITE, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status_of(PART_BAD_SIZE, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status_of(PART_OUT_OF_ORDER, 3), absl::StatusCode::kDataLoss);
  EXPECT_EQ(status_of(PART_OUT_OF_ORDER, 6), absl::StatusCode::kInternal);
}

// ---------------------------------------------------------------------------------- model check

// Pservers, the streams to them and a scheduler, all at the mercy of `random`.
class World {
 public:
  explicit World(uint64_t seed)
      : random_(seed),
        pservers_(1 + random_() % 4),
        shards_(1 + random_() % 6),
        frames_(1 + random_() % 12),
        first_(random_() % 3 == 0 ? 1 + random_() % 50 : 1),
        owner_(shards_),
        last_(shards_, first_ - 1),
        streams_(pservers_),
        route_(shards_),
        delivery_(InitialOwners()),
        added_(first_ - 1) {}

  // Runs until everything is delivered. Empty when all went well.
  std::string Run() {
    for (int step = 0; step < 20000; ++step) {
      // Faults stop after a while: then everything must arrive.
      const bool calm = step > 400;
      if (Done()) return Finish();
      const std::string error = Step(calm);
      if (!error.empty()) return error;
    }
    return "not delivered after 20000 steps";
  }

 private:
  struct Up {
    Send send;
    uint64_t generation;
  };
  struct Down {
    Send send;
    bool refused = false;
    std::vector<Error> errors;
  };
  struct StreamState {
    bool open = false;
    std::deque<Up> up;
    std::deque<Down> down;
    std::deque<Up>
        ghosts;  // of broken streams: the pserver may still get them, its answers are lost
  };

  std::vector<uint32_t> InitialOwners() {
    for (uint32_t& owner : owner_) owner = random_() % pservers_;
    route_ = owner_;
    return owner_;
  }
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  bool Done() const { return added_ == first_ + frames_ - 1 && delivery_.released() == added_; }

  std::string Finish() {
    for (uint32_t s = 0; s < shards_; ++s) {
      if (last_[s] != added_) return "released, but a shard has not applied the last frame";
    }
    return "";
  }

  std::string Step(bool calm) {
    const uint32_t p = random_() % pservers_;
    StreamState& stream = streams_[p];
    switch (random_() % 8) {
      case 0:
        if (added_ < first_ + frames_ - 1) delivery_.Add(++added_);
        return "";
      case 1:
        if (!stream.open) {
          stream.open = true;
          delivery_.OnOpen(p);
        }
        return "";
      case 2:
        if (!calm && Chance(30)) Break(p);
        if (calm && Quiet())
          Break(p);  // a lost message is noticed by a timeout, which breaks the stream
        return "";
      case 3:
        if (!calm && Chance(30)) MoveShard();
        return "";
      case 4:
        if (delivery_.needs_route()) FetchRoute(calm);
        return "";
      case 5:
        return SendSome(p, calm);
      case 6:
        return Serve(p, calm);
      default:
        return Answer(p);
    }
  }

  bool Quiet() const {
    for (const StreamState& s : streams_) {
      if (!s.up.empty() || !s.down.empty()) return false;
    }
    return true;
  }

  void Break(uint32_t p) {
    StreamState& stream = streams_[p];
    if (!stream.open) return;
    for (Up& up : stream.up) {
      if (Chance(50)) stream.ghosts.push_back(up);
      if (Chance(10)) stream.ghosts.push_back(up);
    }
    stream.up.clear();
    stream.down.clear();
    stream.open = false;
    delivery_.OnBroken(p);
  }

  void MoveShard() {  // with its state
    owner_[random_() % shards_] = random_() % pservers_;
    ++generation_;
    published_ = Chance(50);
  }

  void FetchRoute(bool calm) {
    // The scheduler may answer with the route from before the move.
    if (!published_ && !calm && Chance(50)) {
      delivery_.OnRoute(route_);
      return;
    }
    route_ = owner_;
    known_generation_ = generation_;
    delivery_.OnRoute(route_);
  }

  std::string SendSome(uint32_t p, bool calm) {
    for (int n = random_() % 4; n >= 0; --n) {
      auto send = delivery_.Next(p);
      if (!send) return "";
      if (!streams_[p].open) return "sends on a closed stream";
      if (send->sequence <= delivery_.released()) return "sends a frame that was released";
      if (send->sequence > added_) return "sends a frame that is not there";
      for (uint32_t s : send->shards) {
        if (route_[s] != p) return "sends a part to another than its owner";
      }
      if (!calm && Chance(3)) continue;  // lost
      streams_[p].up.push_back({*send, known_generation_});
      if (!calm && Chance(3)) streams_[p].up.push_back({*send, known_generation_});
    }
    return "";
  }

  // The pserver takes one message: the receiving gate of the protocol.
  std::string Serve(uint32_t p, bool calm) {
    StreamState& stream = streams_[p];
    const bool ghost = !stream.ghosts.empty() && Chance(40);
    std::deque<Up>& queue = ghost ? stream.ghosts : stream.up;
    if (queue.empty()) return "";
    const Up up = queue.front();
    queue.pop_front();
    Down down{up.send, false, {}};
    if (up.generation != generation_ && Chance(50)) {
      down.refused = true;
    } else {
      for (uint32_t s : up.send.shards) Gate(p, s, up.send.sequence, &down.errors);
    }
    if (!ghost) stream.down.push_back(std::move(down));
    return "";
  }

  void Gate(uint32_t p, uint32_t s, uint64_t sequence, std::vector<Error>* errors) {
    if (owner_[s] != p) {
      errors->push_back({s, PART_WRONG_SHARD, 0});
    } else if (sequence > last_[s] + 1) {
      errors->push_back({s, PART_OUT_OF_ORDER, last_[s]});
    } else if (sequence == last_[s] + 1) {
      last_[s] = sequence;
    }
  }

  std::string Answer(uint32_t p) {
    StreamState& stream = streams_[p];
    if (stream.down.empty()) return "";
    const Down down = stream.down.front();
    stream.down.pop_front();
    if (down.refused) {
      delivery_.OnRefused(down.send);
    } else {
      const absl::Status status = delivery_.OnReply(down.send, down.errors);
      if (!status.ok()) return std::string(status.ToString());
    }
    for (uint32_t s = 0; s < shards_; ++s) {
      if (delivery_.acknowledged(s) > last_[s]) return "believes in a frame that was not applied";
    }
    return "";
  }

  std::mt19937_64 random_;
  const uint32_t pservers_, shards_;
  const uint64_t frames_, first_;
  std::vector<uint32_t> owner_;
  std::vector<uint64_t> last_;  // by shard: applied 1 .. last, each once
  std::vector<StreamState> streams_;
  uint64_t generation_ = 1, known_generation_ = 1;
  bool published_ = true;
  std::vector<uint32_t> route_;  // as the sender knows it
  Delivery delivery_;
  uint64_t added_;
};

// SLUICE_SEED=n runs that one alone.
TEST(DeliveryModelTest, EachPartIsAppliedOnceAndInOrderWhateverTheNetworkDoes) {
  const char* replay = std::getenv("SLUICE_SEED");
  const uint64_t first = replay != nullptr ? std::strtoull(replay, nullptr, 10) : 1;
  const uint64_t last = replay != nullptr ? first : 5000;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::string error = World(seed).Run();
    ASSERT_EQ(error, "") << "replay with SLUICE_SEED=" << seed;
  }
}

TEST(DeliveryModelTest, NothingIsSentTwiceWhenNothingGoesWrong) {
  Delivery delivery({0, 1, 2, 0, 1, 2});
  for (uint32_t p = 0; p < 3; ++p) delivery.OnOpen(p);
  int sends = 0;
  for (uint64_t sequence = 1; sequence <= 100; ++sequence) {
    delivery.Add(sequence);
    for (uint32_t p = 0; p < 3; ++p) {
      for (const Send& send : DrainAll(&delivery, p)) {
        ++sends;
        ASSERT_TRUE(delivery.OnReply(send, {}).ok());
      }
    }
  }
  EXPECT_EQ(sends, 300);
  EXPECT_EQ(delivery.released(), 100u);
}

}  // namespace
}  // namespace sluice
