// Checks Delivery on a random network with the pservers' gates against a plain reference: each part
// is applied exactly once and in order, and none of a fenced life.
#include "client/delivery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "server/shards/delivery_gate.h"

namespace sluice {
namespace {

using Send = Delivery::Send;
using Error = Delivery::Error;

std::vector<Send> DrainAll(Delivery* delivery, uint32_t pserver) {
  std::vector<Send> sends;
  while (auto send = delivery->Next(pserver)) sends.push_back(*std::move(send));
  return sends;
}

TEST(DeliveryTest, OneSendHasAllShardsOfAPserver) {
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

TEST(DeliveryTest, OutOfOrderPartsAreResentFromTheOneAfterLast) {
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

TEST(DeliveryTest, FrameInFlightFollowsAMovedShardToItsNewOwner) {
  Delivery delivery({0});
  delivery.Add(1);
  delivery.OnOpen(0);
  delivery.OnOpen(1);
  const auto first = DrainAll(&delivery, 0);
  ASSERT_EQ(first.size(), 1u);
  delivery.OnRoute({1});
  const auto moved = DrainAll(&delivery, 1);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].sequence, 1u);
  // The parts that the old owner refuses have been sent again already, so nothing waits for a
  // route.
  delivery.OnRefused(first[0]);
  EXPECT_FALSE(delivery.needs_route());
  ASSERT_TRUE(delivery.OnReply(first[0], {{0, PART_WRONG_SHARD, 0}}).ok());
  EXPECT_FALSE(delivery.needs_route());
  ASSERT_TRUE(delivery.OnReply(moved[0], {}).ok());
  EXPECT_EQ(delivery.released(), 1u);
}

TEST(DeliveryTest, AnEarlierOwnersAcknowledgementDoesNotCount) {
  Delivery delivery({0, 0});
  delivery.Add(1);
  delivery.Add(2);
  delivery.OnOpen(0);
  delivery.OnOpen(1);
  const auto first = DrainAll(&delivery, 0);
  ASSERT_EQ(first.size(), 2u);
  ASSERT_TRUE(delivery.OnReply(first[0], {}).ok());
  delivery.OnRoute({0, 1});
  // Shard 1 was restored elsewhere, perhaps without frame 2.
  ASSERT_TRUE(delivery.OnReply(first[1], {}).ok());
  EXPECT_EQ(delivery.acknowledged(0), 2u);
  EXPECT_EQ(delivery.acknowledged(1), 1u);
  EXPECT_EQ(delivery.released(), 1u);
  const auto moved = DrainAll(&delivery, 1);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].sequence, 2u);
  ASSERT_TRUE(delivery.OnReply(moved[0], {}).ok());
  EXPECT_EQ(delivery.released(), 2u);
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

TEST(DeliveryTest, PartsOfAnOpenFrameAreSentWhenReady) {
  Delivery delivery({0, 0, 1});
  for (uint32_t p = 0; p < 2; ++p) delivery.OnOpen(p);
  delivery.AddOpen(1);
  EXPECT_TRUE(DrainAll(&delivery, 0).empty());
  delivery.MakeReady(1);
  const auto early = DrainAll(&delivery, 0);
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].shards, std::vector<uint32_t>{1});
  ASSERT_TRUE(delivery.OnReply(early[0], {}).ok());
  delivery.OnBroken(0);
  delivery.OnOpen(0);
  EXPECT_TRUE(DrainAll(&delivery, 0).empty()) << "it is acknowledged, the others are not ready";
  for (uint32_t s = 0; s < 3; ++s) delivery.MakeReady(s);
  const auto rest = DrainAll(&delivery, 0);
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].shards, std::vector<uint32_t>{0});
  ASSERT_TRUE(delivery.OnReply(rest[0], {}).ok());
  EXPECT_EQ(delivery.released(), 0u);
  ASSERT_TRUE(delivery.OnReply(DrainAll(&delivery, 1)[0], {}).ok());
  EXPECT_EQ(delivery.released(), 1u);
}

TEST(DeliveryTest, FatalErrorsHaveTheirOwnStatusCodes) {
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

// Simulates pservers, the streams to them, a scheduler and the lives of one worker. `random`
// decides every event and fault. Without by_step, shards are also restored from copies: a pserver
// dies, and each of its shards continues, there or elsewhere, as it was at some earlier moment.
class World {
 public:
  explicit World(uint64_t seed)
      : random_(seed),
        pservers_(1 + random_() % 4),
        shards_(1 + random_() % 6),
        frames_(1 + random_() % 12),
        by_step_(random_() % 2 == 0),
        first_(by_step_ ? 1 + random_() % 50 : 1),
        owner_(shards_),
        gates_(shards_, DeliveryGate(1, by_step_)),
        held_(shards_),
        copies_(shards_),
        newest_(shards_, 1),
        reported_(shards_),
        streams_(pservers_),
        route_(shards_),
        delivery_(InitialOwners()),
        added_(first_ - 1) {
    for (uint32_t s = 0; s < shards_; ++s) {
      for (uint64_t q = 1; q < first_; ++q) Apply(s, 1, q);
    }
  }

  // Runs until everything is delivered. Empty when all went well.
  std::string Run() {
    for (int step = 0; step < 20000; ++step) {
      // Faults stop after a while; then everything must arrive.
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
    uint64_t incarnation;
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
        ghosts;  // of broken streams: the pserver may still get them, but its replies are lost
  };

  std::vector<uint32_t> InitialOwners() {
    for (uint32_t& owner : owner_) owner = random_() % pservers_;
    route_ = owner_;
    return owner_;
  }
  bool Chance(int percent) { return static_cast<int>(random_() % 100) < percent; }
  bool Done() const {
    return added_ == first_ + frames_ - 1 && delivery_.released() == added_ && !AwaitingAnywhere();
  }

  std::string Finish() {
    for (uint32_t s = 0; s < shards_; ++s) {
      if (Last(s) != added_) return "released, but a shard has not applied the last frame";
      uint64_t missing = 0;
      for (const auto& [life, sequences] : held_[s].applied) {
        const auto reported = reported_[s].find(life);
        if (reported != reported_[s].end() && reported->second < sequences.back())
          return "a shard applied a frame of a life after it had reported what it holds of it";
        for (size_t i = 1; i < sequences.size(); ++i) {
          if (sequences[i] <= sequences[i - 1]) return "a shard applied a frame twice or late";
        }
      }
      for (const auto& [life, last] : held_[s].last)
        missing += last - held_[s].applied[life].size();
      if (!restored_ && missing > 0) return "a shard did not apply each frame once and in order";
      if (missing != held_[s].lost) {
        return "a shard lacks " + std::to_string(missing) + " frames and has counted " +
               std::to_string(held_[s].lost);
      }
    }
    return "";
  }

  std::string Step(bool calm) {
    const uint32_t p = random_() % pservers_;
    StreamState& stream = streams_[p];
    switch (random_() % 9) {
      case 0:
        AddSome();
        return "";
      case 1:
        if (!stream.open && Awaiting(p) && known_generation_ != generation_) {
          // Refused: the rank cannot know which shards are meant, and asks for the route.
          FetchRoute(calm);
        } else if (!stream.open) {
          stream.open = true;
          Hello(p);
          Tell(p);
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
        if (!calm && !by_step_ && Chance(20)) CopyShards();
        if (!calm && !by_step_ && Chance(15)) Restore();
        return "";
      case 4:
        // The scheduler tells the worker when shards have moved to another process.
        if (delivery_.needs_route() || AwaitingAnywhere()) FetchRoute(calm);
        return "";
      case 5:
        return SendSome(p, calm);
      case 6:
        return Serve(p, calm);
      case 7:
        if (!calm && Chance(3)) NewLife();
        if (!calm && Chance(3)) return Replace();
        return "";
      default:
        return Answer(p);
    }
  }

  // Adds a whole or an open frame, or more parts to the open one.
  void AddSome() {
    if (!ready_.empty()) {
      const bool rest = Chance(30);
      for (uint32_t s = 0; s < shards_; ++s) {
        if (!rest && !Chance(40)) continue;
        delivery_.MakeReady(s);
        ready_[s] = true;
      }
      if (std::find(ready_.begin(), ready_.end(), false) == ready_.end()) ready_.clear();
    } else if (added_ < first_ + frames_ - 1 && Chance(50)) {
      delivery_.AddOpen(++added_);
      ready_.assign(shards_, false);
    } else if (added_ < first_ + frames_ - 1) {
      delivery_.Add(++added_);
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

  // A pserver gets the hello of a new life. Other pservers still accept frames of the old one.
  void Hello(uint32_t p) {
    for (uint32_t s = 0; s < shards_; ++s) {
      if (owner_[s] != p) continue;
      gates_[s].Fence(0, incarnation_);
      newest_[s] = incarnation_;
    }
  }

  bool Awaiting(uint32_t p) const {
    for (uint32_t s = 0; s < shards_; ++s) {
      if (owner_[s] == p && gates_[s].awaits(0)) return true;
    }
    return false;
  }
  bool AwaitingAnywhere() const {
    for (uint32_t p = 0; p < pservers_; ++p) {
      if (Awaiting(p)) return true;
    }
    return false;
  }
  // The hello of the present life says what was acknowledged to it.
  void Tell(uint32_t p) {
    for (uint32_t s = 0; s < shards_; ++s) {
      if (owner_[s] != p || !gates_[s].awaits(0)) continue;
      held_[s].lost += gates_[s].Hear(0, incarnation_, delivery_.acknowledged(s));
      held_[s].last[incarnation_] = gates_[s].last(0);
    }
  }

  // A checkpoint, whose shards are cut at different moments. None is made before restored shards
  // have heard from the rank.
  void CopyShards() {
    if (AwaitingAnywhere()) return;
    for (uint32_t s = 0; s < shards_; ++s) {
      if (Chance(70)) copies_[s] = held_[s];
    }
  }

  // The scheduler takes pserver p for dead, and others continue with its shards from their copies.
  // It may still be alive, and acknowledge what it then loses to those who do not know that.
  void Restore() {
    const uint32_t p = random_() % pservers_;
    const bool alive = pservers_ > 1 && Chance(40);
    if (!alive) {
      Break(p);
      streams_[p].ghosts.clear();
    }
    ++generation_;
    published_ = true;
    for (uint32_t s = 0; s < shards_; ++s) {
      if (owner_[s] != p) continue;
      restored_ = true;
      if (alive) zombies_.insert_or_assign(s, Zombie{p, generation_, gates_[s]});
      owner_[s] = alive ? (p + 1 + random_() % (pservers_ - 1)) % pservers_ : random_() % pservers_;
      const Held before = held_[s];
      held_[s] = copies_[s];
      // The frames of earlier lives are known, and are not delivered again.
      for (const auto& [life, last] : before.last) {
        if (life == incarnation_) continue;
        held_[s].lost += last - held_[s].last[life];
        held_[s].last[life] = last;
      }
      gates_[s] = DeliveryGate(1, by_step_);
      gates_[s].Await(0, incarnation_, Last(s));
      newest_[s] = incarnation_;
    }
  }

  // The scheduler gives the rank to another process. The pservers fence the old life one after
  // another, while its frames are still under way; the new life begins when all of them have.
  std::string Replace() {
    if (AwaitingAnywhere()) return "";
    ++generation_;
    published_ = true;
    for (uint32_t fenced = 0; fenced < pservers_; ++fenced) {
      for (int n = random_() % 4; n > 0; --n) {
        const std::string error = Chance(50) ? Serve(random_() % pservers_, false)
                                             : SendSome(random_() % pservers_, false);
        if (!error.empty()) return error;
      }
      ++incarnation_;
      Hello(fenced);
      --incarnation_;
    }
    // The shards report their final counts now.
    if (!by_step_) {
      for (uint32_t s = 0; s < shards_; ++s) reported_[s][incarnation_] = Last(s);
    }
    NewLife();
    // A sync rank begins after its last commit. Shards may already hold the step that it replays.
    if (by_step_ && added_ >= first_ && Chance(50)) --added_;
    return "";
  }

  // The worker dies and restarts from its first frame or from the oldest open step. While restored
  // shards await it, the whole job would be rolled back instead.
  void NewLife() {
    if (AwaitingAnywhere()) return;
    for (uint32_t p = 0; p < pservers_; ++p) Break(p);
    ++incarnation_;
    added_ = 0;
    if (by_step_) {
      added_ = first_ + frames_ - 2;  // the last one is replayed even when all have it
      for (uint32_t s = 0; s < shards_; ++s) added_ = std::min(added_, Last(s));
    }
    route_ = owner_;
    known_generation_ = generation_;
    delivery_ = Delivery(route_);
    ready_.clear();
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
    // A stream that carries more shards than before begins anew, with another hello.
    for (uint32_t s = 0; s < shards_; ++s) {
      if (route_[s] != owner_[s]) Break(owner_[s]);
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
      if (send->sequence > added_) return "sends a frame that was never added";
      for (uint32_t s : send->shards) {
        if (route_[s] != p) return "sends a part to a pserver that does not own it";
        if (send->sequence == added_ && !ready_.empty() && !ready_[s]) {
          return "sends a part that is not ready";
        }
      }
      if (!calm && Chance(3)) continue;  // lost
      streams_[p].up.push_back({*send, known_generation_, incarnation_});
      if (!calm && Chance(3)) streams_[p].up.push_back(streams_[p].up.back());
    }
    return "";
  }

  // The pserver handles one message.
  std::string Serve(uint32_t p, bool calm) {
    StreamState& stream = streams_[p];
    const bool ghost = !stream.ghosts.empty() && Chance(40);
    std::deque<Up>& queue = ghost ? stream.ghosts : stream.up;
    if (queue.empty()) return "";
    const Up up = queue.front();
    queue.pop_front();
    Down down{up.send, false, {}};
    const bool other = up.generation != generation_;
    if (other && (Chance(50) || Awaiting(p))) {
      down.refused = true;
    } else if (Awaiting(p)) {
      // It has not said hello since: refused as not ready, so the client opens the stream anew.
      if (!ghost) Break(p);
      return "";
    } else {
      for (uint32_t s : up.send.shards) {
        const std::string error = Gate(p, s, up, &down.errors);
        if (!error.empty()) return error;
      }
    }
    if (!ghost) stream.down.push_back(std::move(down));
    return "";
  }

  std::string Gate(uint32_t p, uint32_t s, const Up& up, std::vector<Error>* errors) {
    const auto zombie = zombies_.find(s);
    if (zombie != zombies_.end() && zombie->second.pserver == p &&
        up.generation < zombie->second.until) {
      DeliveryGate& gate = zombie->second.gate;
      const DeliveryGate::Verdict verdict = gate.Admit(0, up.incarnation, up.send.sequence);
      if (verdict == DeliveryGate::Verdict::kOutOfOrder)
        errors->push_back({s, PART_OUT_OF_ORDER, gate.last(0)});
      if (verdict == DeliveryGate::Verdict::kStaleIncarnation)
        errors->push_back({s, PART_STALE_INCARNATION, gate.last(0)});
      return "";
    }
    if (owner_[s] != p) {
      errors->push_back({s, PART_WRONG_SHARD, 0});
      return "";
    }
    const DeliveryGate::Verdict verdict = Apply(s, up.incarnation, up.send.sequence);
    if (verdict == DeliveryGate::Verdict::kApply && up.incarnation < newest_[s]) {
      return "a shard applied a frame of a fenced life";
    }
    newest_[s] = std::max(newest_[s], up.incarnation);
    if (verdict == DeliveryGate::Verdict::kStaleIncarnation) {
      errors->push_back({s, PART_STALE_INCARNATION, gates_[s].last(0)});
    } else if (verdict == DeliveryGate::Verdict::kOutOfOrder) {
      errors->push_back({s, PART_OUT_OF_ORDER, gates_[s].last(0)});
    }
    return "";
  }

  DeliveryGate::Verdict Apply(uint32_t s, uint64_t incarnation, uint64_t sequence) {
    const DeliveryGate::Verdict verdict = gates_[s].Admit(0, incarnation, sequence);
    if (verdict == DeliveryGate::Verdict::kApply) {
      const uint64_t life = by_step_ ? 0 : incarnation;
      held_[s].applied[life].push_back(sequence);
      held_[s].last[life] = sequence;
    }
    return verdict;
  }
  // The last frame of this life that shard s has applied or counted as lost, according to the
  // reference.
  uint64_t Last(uint32_t s) const {
    const auto it = held_[s].last.find(by_step_ ? 0 : incarnation_);
    return it == held_[s].last.end() ? 0 : it->second;
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
      const bool here = route_[s] == owner_[s] && !gates_[s].awaits(0);
      if (here && delivery_.acknowledged(s) > Last(s))
        return "holds a frame for acknowledged that was not applied";
    }
    return "";
  }

  std::mt19937_64 random_;
  const uint32_t pservers_, shards_;
  const uint64_t frames_;
  const bool by_step_;  // sync: a sequence is a step, in every life
  const uint64_t first_;
  std::vector<uint32_t> owner_;
  std::vector<DeliveryGate> gates_;  // by shard
  // The reference for one shard, by life (with by_step_ in all lives together): the sequences that
  // were applied, and the last one that was applied or lost.
  struct Held {
    std::map<uint64_t, std::vector<uint64_t>> applied;
    std::map<uint64_t, uint64_t> last;
    uint64_t lost = 0;
  };
  // A former owner that does not know it. It serves requests of generations before `until`.
  struct Zombie {
    uint32_t pserver;
    uint64_t until;
    DeliveryGate gate;
  };
  std::vector<Held> held_, copies_;     // by shard
  std::map<uint32_t, Zombie> zombies_;  // by shard: the latest one
  bool restored_ = false;
  std::vector<uint64_t> newest_;                        // by shard: the newest life that said hello
  std::vector<std::map<uint64_t, uint64_t>> reported_;  // by shard and life: its last frame
  std::vector<StreamState> streams_;
  uint64_t generation_ = 1, known_generation_ = 1, incarnation_ = 1;
  bool published_ = true;
  std::vector<uint32_t> route_;  // as the sender knows it
  Delivery delivery_;
  uint64_t added_;
  std::vector<bool> ready_;  // parts of the last frame while it is open; else empty
};

// SLUICE_SEED=n runs only that seed.
TEST(DeliveryModelTest, EachPartIsAppliedOnceAndInOrderOnAnyNetwork) {
  const char* replay = std::getenv("SLUICE_SEED");
  const uint64_t first = replay != nullptr ? std::strtoull(replay, nullptr, 10) : 1;
  const uint64_t last = replay != nullptr ? first : 5000;
  for (uint64_t seed = first; seed <= last; ++seed) {
    const std::string error = World(seed).Run();
    ASSERT_EQ(error, "") << "replay with SLUICE_SEED=" << seed;
  }
}

TEST(DeliveryModelTest, SendsNothingTwiceWithoutFaults) {
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
