#include "server/delivery_gate.h"

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
      ASSERT_EQ(gate.Admit(rank, incarnation, sequence), expected) << "operation " << i;
      if (expected == Verdict::kApply) done.insert(sequence);
    }
  }
}

TEST(DeliveryGateTest, AJobThatResumesBeginsBehindItsStep) {
  DeliveryGate gate(2, true);
  gate.StartAt(40);
  EXPECT_EQ(gate.last(1), 40u);
  EXPECT_EQ(gate.Admit(1, 1, 40), Verdict::kDuplicate);
  EXPECT_EQ(gate.Admit(1, 1, 42), Verdict::kOutOfOrder);
  EXPECT_EQ(gate.Admit(1, 1, 41), Verdict::kApply);
}

}  // namespace
}  // namespace sluice
