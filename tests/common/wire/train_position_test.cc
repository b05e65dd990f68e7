#include "common/wire/train_position.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(TrainPositionTest, GoesThroughPushAndRankPosition) {
  const TrainPosition position{6, 70, 2, 500, 9, 1.5, 490.25};
  Push push;
  SetPosition(position, &push);
  EXPECT_EQ(push.task_id(), 6u);
  EXPECT_EQ(push.task_end(), 70u);
  EXPECT_EQ(push.totals().examples(), 500u);
  RankPosition rank;
  SetPosition(PositionOf(push), &rank);
  const TrainPosition read = PositionOf(rank);
  EXPECT_EQ(read.task_id, 6u);
  EXPECT_EQ(read.task_end, 70u);
  EXPECT_EQ(read.epoch, 2u);
  EXPECT_EQ(read.examples, 500u);
  EXPECT_EQ(read.steps, 9u);
  EXPECT_EQ(read.loss_sum, 1.5);
  EXPECT_EQ(read.weight_sum, 490.25);
}

RankPosition At(uint64_t incarnation, uint64_t sequence, double weight_sum = 0) {
  RankPosition at;
  at.set_incarnation(incarnation);
  at.set_sequence(sequence);
  at.mutable_totals()->set_weight_sum(weight_sum);
  return at;
}

TEST(TrainPositionTest, LeastPositionKeepsItsLargestSums) {
  RankPosition least = At(1, 9, 90);
  KeepLeast(At(1, 7, 60), &least);
  EXPECT_EQ(least.sequence(), 7u);
  KeepLeast(At(1, 8, 80), &least);
  EXPECT_EQ(least.sequence(), 7u);
  // A part of frame 7 that left early has no sums of the frame yet.
  KeepLeast(At(1, 7, 70), &least);
  EXPECT_EQ(least.totals().weight_sum(), 70);
  KeepLeast(At(1, 7, 60), &least);
  EXPECT_EQ(least.totals().weight_sum(), 70);
  KeepLeast(RankPosition(), &least);
  EXPECT_EQ(least.sequence(), 0u);
  least = At(2, 1);
  KeepLeast(At(1, 50), &least);
  EXPECT_EQ(least.incarnation(), 1u) << "an earlier life is behind";
}

TEST(TrainPositionTest, APushOfSyncHasNone) {
  Push push;
  SetPosition(TrainPosition(), &push);
  EXPECT_EQ(push.ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace sluice
