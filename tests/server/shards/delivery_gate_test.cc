#include "server/shards/delivery_gate.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

namespace sluice {
namespace {

using Verdict = DeliveryGate::Verdict;

TEST(DeliveryGateTest, AppliesOnlyTheNextSequence) {
  DeliveryGate gate(2, false);
  EXPECT_EQ(gate.Admit(0, 1, 2), Verdict::kOutOfOrder);
  EXPECT_EQ(gate.Admit(0, 1, 1), Verdict::kApply);
  EXPECT_EQ(gate.Admit(0, 1, 1), Verdict::kDuplicate);
  EXPECT_EQ(gate.Admit(0, 1, 3), Verdict::kOutOfOrder);
  EXPECT_EQ(gate.last(0), 1u);
  EXPECT_EQ(gate.Admit(1, 1, 1), Verdict::kApply);
}

TEST(DeliveryGateTest, NewIncarnationStartsAtOneAndFencesTheOld) {
  DeliveryGate gate(1, false);
  for (uint64_t s = 1; s <= 5; ++s) ASSERT_EQ(gate.Admit(0, 1, s), Verdict::kApply);
  EXPECT_EQ(gate.Admit(0, 2, 1), Verdict::kApply);
  EXPECT_EQ(gate.Admit(0, 1, 6), Verdict::kStaleIncarnation);
  EXPECT_EQ(gate.Admit(0, 2, 2), Verdict::kApply);
}

TEST(DeliveryGateTest, InSyncSequencesContinueAcrossIncarnations) {
  DeliveryGate gate(1, true);
  EXPECT_EQ(gate.Admit(0, 1, 1), Verdict::kApply);
  EXPECT_EQ(gate.Admit(0, 2, 1), Verdict::kDuplicate);
  EXPECT_EQ(gate.Admit(0, 1, 2), Verdict::kStaleIncarnation);
  EXPECT_EQ(gate.Admit(0, 2, 2), Verdict::kApply);
}

// Compares with a plain model: a set of the frames applied in each life, whose smallest missing
// number comes next.
TEST(DeliveryGateTest, RandomFramesAreAppliedOnceAndInOrder) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    const bool by_step = seed % 2 == 0;
    DeliveryGate gate(3, by_step);
    std::map<std::pair<uint32_t, uint64_t>, std::set<uint64_t>> applied;
    uint64_t newest[3] = {0, 0, 0};
    for (int i = 0; i < 3000; ++i) {
      const uint32_t rank = random() % 3;
      const uint64_t incarnation =
          std::max<uint64_t>(1, newest[rank] + random() % 20 / 19 - random() % 8 / 7);
      const uint64_t life = by_step ? 0 : incarnation;
      std::set<uint64_t>& done = applied[{rank, life}];
      const uint64_t next = done.empty() ? 1 : *done.rbegin() + 1;
      const uint64_t sequence =
          std::max<int64_t>(1, static_cast<int64_t>(next) + static_cast<int64_t>(random() % 5) - 2);
      Verdict expected = sequence == next  ? Verdict::kApply
                         : sequence < next ? Verdict::kDuplicate
                                           : Verdict::kOutOfOrder;
      if (incarnation < newest[rank]) expected = Verdict::kStaleIncarnation;
      newest[rank] = std::max(newest[rank], incarnation);
      ASSERT_EQ(gate.Applies(rank, incarnation, sequence), expected == Verdict::kApply)
          << "operation " << i;
      ASSERT_EQ(gate.Admit(rank, incarnation, sequence), expected) << "operation " << i;
      if (expected == Verdict::kApply) done.insert(sequence);
    }
  }
}

TEST(DeliveryGateTest, ResumedJobBeginsAfterItsStep) {
  DeliveryGate gate(2, true);
  gate.StartAt(40);
  EXPECT_EQ(gate.last(1), 40u);
  EXPECT_EQ(gate.Admit(1, 1, 40), Verdict::kDuplicate);
  EXPECT_EQ(gate.Admit(1, 1, 42), Verdict::kOutOfOrder);
  EXPECT_EQ(gate.Admit(1, 1, 41), Verdict::kApply);
}

TEST(DeliveryGateTest, RestoredGateContinuesAfterTheAcknowledgedFrameAndCountsTheGap) {
  DeliveryGate gate(3, false);
  gate.Await(0, 7, 4);
  EXPECT_TRUE(gate.awaits(0));
  EXPECT_EQ(gate.Admit(0, 7, 5), Verdict::kOutOfOrder) << "it has not heard from the rank";
  EXPECT_FALSE(gate.Applies(0, 7, 5));
  EXPECT_EQ(gate.Hear(0, 7, 9), 5u);
  EXPECT_FALSE(gate.awaits(0));
  EXPECT_EQ(gate.Admit(0, 7, 9), Verdict::kDuplicate);
  EXPECT_EQ(gate.Admit(0, 7, 11), Verdict::kOutOfOrder);
  EXPECT_EQ(gate.Admit(0, 7, 10), Verdict::kApply);
  EXPECT_EQ(gate.Hear(0, 7, 20), 0u) << "it is asked once";
  EXPECT_EQ(gate.Admit(0, 7, 21), Verdict::kOutOfOrder);
  // It holds more than the rank knows, since a reply was lost.
  gate.Await(1, 3, 8);
  EXPECT_EQ(gate.Hear(1, 3, 6), 0u);
  EXPECT_EQ(gate.Admit(1, 3, 7), Verdict::kDuplicate);
  EXPECT_EQ(gate.Admit(1, 3, 9), Verdict::kApply);
  // A gate that was not restored accepts no gap.
  EXPECT_EQ(gate.Hear(2, 3, 6), 0u);
  EXPECT_EQ(gate.Admit(2, 3, 7), Verdict::kOutOfOrder);
}

TEST(DeliveryGateTest, ARestoredGateHearsOnlyTheRanksPresentLife) {
  DeliveryGate gate(1, false);
  gate.Await(0, 7, 4);
  EXPECT_EQ(gate.Hear(0, 6, 9), 0u);
  EXPECT_TRUE(gate.awaits(0));
  // The next life begins at 1: it cannot say what its predecessor had acknowledged.
  EXPECT_EQ(gate.Hear(0, 8, 0), 0u);
  EXPECT_EQ(gate.Admit(0, 7, 5), Verdict::kStaleIncarnation);
  EXPECT_EQ(gate.Admit(0, 8, 1), Verdict::kApply);
}

}  // namespace
}  // namespace sluice
