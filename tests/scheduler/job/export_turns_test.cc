#include "scheduler/job/export_turns.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

using TurnKind = ExportTurns::Kind;

absl::Time TurnAt(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

TEST(ExportTurnsTest, OddNumbersAreCheckpointsAndEvenOnesExports) {
  const ExportTurns turns(/*exports=*/true);
  for (uint64_t over = 0; over < 10; ++over) {
    for (const TurnKind kind : {TurnKind::kCheckpoint, TurnKind::kExport}) {
      const uint64_t number = turns.NumberAfter(over, kind);
      EXPECT_GT(number, over);
      EXPECT_LE(number, over + 2);
      EXPECT_EQ(turns.KindOf(number), kind);
      EXPECT_EQ(number % 2, kind == TurnKind::kCheckpoint ? 1u : 0u);
    }
  }
}

TEST(ExportTurnsTest, WithoutExportsAllNumbersAreCheckpoints) {
  const ExportTurns turns(/*exports=*/false);
  for (uint64_t over = 0; over < 10; ++over) {
    EXPECT_EQ(turns.NumberAfter(over, TurnKind::kCheckpoint), over + 1);
    EXPECT_EQ(turns.KindOf(over), TurnKind::kCheckpoint);
  }
}

TEST(ExportTurnsTest, WhatIsDueAtOnceTakesTurns) {
  ExportTurns turns(/*exports=*/true);
  EXPECT_FALSE(turns.ExportGoesFirst()) << "the first is a checkpoint";
  turns.CheckpointOver();
  EXPECT_TRUE(turns.ExportGoesFirst());
  turns.ExportOver(/*given_up=*/false);
  EXPECT_FALSE(turns.ExportGoesFirst());
}

TEST(ExportTurnsTest, AnExportGivesWayAfterTheWaitAndTheNextOneDoesNot) {
  ExportTurns turns(/*exports=*/true);
  EXPECT_FALSE(turns.GivesWay(TurnAt(100)));
  EXPECT_FALSE(turns.GivesWay(TurnAt(159.5)));
  EXPECT_TRUE(turns.GivesWay(TurnAt(160)));
  EXPECT_FALSE(turns.GivesWay(TurnAt(161))) << "once";
  turns.ExportOver(/*given_up=*/true);
  turns.CheckpointOver();
  EXPECT_FALSE(turns.GivesWay(TurnAt(200)));
  EXPECT_FALSE(turns.GivesWay(TurnAt(10'000))) << "it may finish";
  turns.ExportOver(/*given_up=*/false);
  EXPECT_FALSE(turns.GivesWay(TurnAt(20'000))) << "the wait begins anew with each export";
  EXPECT_TRUE(turns.GivesWay(TurnAt(20'060)));
}

}  // namespace
}  // namespace sluice
