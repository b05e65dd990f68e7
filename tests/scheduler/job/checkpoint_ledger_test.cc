#include "scheduler/job/checkpoint_ledger.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using testing::ElementsAre;

const absl::Time kNow = absl::UnixEpoch();

JobCheckpoints::Options SyncOptions(uint64_t over = 0) {
  JobCheckpoints::Options options;
  options.root = "/c";
  options.worker_num = 1;
  options.pserver_num = 1;
  options.instance = 7;
  options.over = over;
  return options;
}

TEST(CheckpointLedgerTest, ADamagedCheckpointIsNotedOnce) {
  CheckpointLedger ledger;
  ledger.PassOver({"a", "b"});
  ledger.PassOver({"b", "c"});
  EXPECT_THAT(ledger.damaged(), ElementsAre("a", "b", "c"));
}

TEST(CheckpointLedgerTest, FiguresContinueThoseOfEarlierSchedulers) {
  CheckpointLedger ledger;
  CheckpointStatus before;
  before.set_made(3);
  ledger.RestoreStatus(before);
  EXPECT_EQ(ledger.checkpoints(), nullptr);
  EXPECT_EQ(ledger.status().made(), 3u);
  ledger.Begin(SyncOptions(), kNow);
  ASSERT_NE(ledger.checkpoints(), nullptr);
  EXPECT_EQ(ledger.status().made(), 3u);
}

TEST(CheckpointLedgerTest, WhatMembersWereToldIsNoNews) {
  CheckpointLedger ledger;
  ledger.Begin(SyncOptions(/*over=*/4), kNow);
  EXPECT_FALSE(ledger.orders_news());
  EXPECT_TRUE(ledger.over_is_news());
  ledger.ToldPservers();
  EXPECT_FALSE(ledger.over_is_news());
  ledger.ToldWorkers();
  ledger.checkpoints()->Demand(kNow);
  ledger.checkpoints()->Plan(kNow);
  EXPECT_TRUE(ledger.asks_news());
  ledger.ToldWorkers();
  EXPECT_FALSE(ledger.asks_news());
}

}  // namespace
}  // namespace sluice
