#include "scheduler/job_ranks.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(JobRanksTest, ASlotIsFoundByItsMember) {
  JobRanks ranks;
  ranks.slots.emplace_back(/*member_id=*/70, /*worker=*/0, /*incarnation=*/1);
  ranks.slots.emplace_back(/*member_id=*/50, /*worker=*/1, /*incarnation=*/1);
  ranks.by_member = {{70, 0}, {50, 1}};
  EXPECT_EQ(ranks.SlotOf(70), &ranks.slots[0]);
  EXPECT_EQ(ranks.SlotOf(50), &ranks.slots[1]);
  EXPECT_EQ(ranks.SlotOf(1), nullptr);
}

TEST(JobRanksTest, RanksAreReleasedWhenEverySlotIs) {
  JobRanks ranks;
  EXPECT_TRUE(ranks.released()) << "no member serves a job that has not started";
  ranks.slots.emplace_back(70, 0, 1);
  ranks.slots.emplace_back(50, 1, 1);
  ranks.slots[1].Release();
  EXPECT_FALSE(ranks.released());
  ranks.slots[0].Release();
  EXPECT_TRUE(ranks.released());
}

}  // namespace
}  // namespace sluice
