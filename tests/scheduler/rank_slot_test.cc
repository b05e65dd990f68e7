#include "scheduler/rank_slot.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

const absl::Time kNow = absl::UnixEpoch();

RankSlot Assigned(uint64_t version) {
  RankSlot slot(/*member_id=*/7, /*worker=*/3, /*incarnation=*/9);
  slot.Assign(version);
  return slot;
}

TEST(RankSlotTest, ServesUntilItIsWithdrawnAndReleased) {
  RankSlot slot = Assigned(2);
  EXPECT_EQ(slot.member_id(), 7u);
  EXPECT_EQ(slot.worker(), 3u);
  EXPECT_EQ(slot.incarnation(), 9u);
  EXPECT_TRUE(slot.serving());
  slot.Withdraw(5);
  EXPECT_FALSE(slot.serving());
  EXPECT_FALSE(slot.released());
  slot.Release();
  EXPECT_TRUE(slot.released());
}

TEST(RankSlotTest, OnlyAReportThatHasSeenTheWithdrawalConfirmsIt) {
  RankSlot slot = Assigned(2);
  EXPECT_FALSE(slot.ConfirmsStop(9)) << "nobody has asked it to stop";
  slot.Withdraw(5);
  EXPECT_FALSE(slot.ConfirmsStop(4));
  EXPECT_TRUE(slot.ConfirmsStop(5));
  slot.Release();
  EXPECT_FALSE(slot.ConfirmsStop(5)) << "a release is confirmed once";
}

TEST(RankSlotTest, AReportMadeBeforeTheAssignmentIsNotIdleness) {
  RankSlot slot = Assigned(2);
  EXPECT_EQ(slot.SeenIdle(1, kNow), absl::InfiniteFuture());
  EXPECT_EQ(slot.SeenIdle(2, kNow + absl::Seconds(1)), kNow + absl::Seconds(1));
}

TEST(RankSlotTest, IdlenessCountsFromTheFirstIdleReport) {
  RankSlot slot = Assigned(2);
  EXPECT_FALSE(slot.has_run());
  EXPECT_EQ(slot.SeenIdle(2, kNow), kNow);
  EXPECT_EQ(slot.SeenIdle(2, kNow + absl::Seconds(3)), kNow);
  slot.SeenRunning();
  EXPECT_TRUE(slot.has_run());
  EXPECT_EQ(slot.SeenIdle(2, kNow + absl::Seconds(4)), kNow + absl::Seconds(4));
}

}  // namespace
}  // namespace sluice
