#include "server/shards/row_tombstones.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(RowTombstonesTest, AreWrittenInOrderAndRestored) {
  RowTombstones gone;
  gone.Add(9, 4);
  gone.Add(7, 4);
  gone.Add(8, 2);
  gone.DropBefore(1);
  ShardFacts facts;
  facts.set_schedule_steps(10);
  gone.Write(&facts);
  ASSERT_EQ(facts.tombstones_size(), 3);
  EXPECT_EQ(facts.tombstones(0).key(), 8u);
  EXPECT_EQ(facts.tombstones(1).key(), 7u);
  EXPECT_EQ(facts.tombstones(2).key(), 9u);
  RowTombstones restored;
  restored.Restore(facts);
  EXPECT_EQ(restored.complete_since(), 1u);
  ShardFacts again;
  again.set_schedule_steps(10);
  restored.Write(&again);
  EXPECT_EQ(again.SerializeAsString(), facts.SerializeAsString());
}

TEST(RowTombstonesTest, AnExportMakesOlderOnesUseless) {
  RowTombstones gone;
  for (uint64_t step = 1; step <= 10; ++step) gone.Add(step, step);
  gone.DropBefore(6);
  EXPECT_EQ(gone.size(), 5u);
  EXPECT_EQ(gone.complete_since(), 6u);
  gone.Add(99, 3);
  EXPECT_EQ(gone.size(), 5u);
}

TEST(RowTombstonesTest, BeyondTheBoundTheOldestGoAndTheListSaysSo) {
  RowTombstones gone;
  for (uint64_t i = 0; i < 3 * RowTombstones::kMost; ++i) {
    gone.Add(i, i / 7);
    ASSERT_LE(gone.size(), RowTombstones::kMost);
  }
  const uint64_t last = (3 * RowTombstones::kMost - 1) / 7;
  EXPECT_GT(gone.complete_since(), last / 2);
  EXPECT_LT(gone.complete_since(), last);
  ShardFacts facts;
  gone.Write(&facts);
  for (const RowTombstone& one : facts.tombstones())
    EXPECT_GE(one.schedule_step(), gone.complete_since());
  // All of one step.
  RowTombstones of_one;
  for (uint64_t i = 0; i <= RowTombstones::kMost; ++i) of_one.Add(i, 5);
  EXPECT_EQ(of_one.complete_since(), 6u);
  EXPECT_EQ(of_one.size(), 0u);
}

TEST(RowTombstonesTest, FactsOfAShardThatKeptNoneSufficeForNoEarlierExport) {
  ShardFacts facts;
  facts.set_schedule_steps(20);
  RowTombstones gone;
  gone.Restore(facts);
  EXPECT_EQ(gone.complete_since(), 20u);
}

}  // namespace
}  // namespace sluice
