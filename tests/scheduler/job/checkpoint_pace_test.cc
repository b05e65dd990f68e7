#include "scheduler/job/checkpoint_pace.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

absl::Time At(double seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }

CheckpointPace BySteps(uint64_t every, uint64_t first_step = 0) {
  CheckpointConfig config;
  config.set_every_steps(every);
  return CheckpointPace(config, first_step, At(0));
}

CheckpointPace ByEpochs(uint32_t every) {
  CheckpointConfig config;
  config.set_every_epochs(every);
  return CheckpointPace(config, /*first_step=*/0, At(0));
}

CheckpointPace ByTime(double every) {
  CheckpointConfig config;
  config.set_every_s(every);
  return CheckpointPace(config, /*first_step=*/0, At(0));
}

TEST(CheckpointPaceTest, TheEndOfAnEpochIsDueByItsRule) {
  const CheckpointPace pace = ByEpochs(2);
  EXPECT_FALSE(pace.DueAfterEpoch(0, /*last=*/false));
  EXPECT_TRUE(pace.DueAfterEpoch(1, /*last=*/false));
  EXPECT_FALSE(pace.DueAfterEpoch(2, /*last=*/true));
  EXPECT_FALSE(BySteps(10).DueAfterEpoch(1, /*last=*/false));
}

TEST(CheckpointPaceTest, TheEndOfTheJobIsDueWithoutAnotherRule) {
  CheckpointConfig config;
  config.set_at_end(true);
  const CheckpointPace pace(config, /*first_step=*/0, At(0));
  EXPECT_FALSE(pace.DueAfterEpoch(0, /*last=*/false));
  EXPECT_TRUE(pace.DueAfterEpoch(0, /*last=*/true));
  EXPECT_FALSE(pace.has_rules()) << "none is due before";
}

TEST(CheckpointPaceTest, AMultipleIsDueOnceAfterItHasPassed) {
  CheckpointPace pace = BySteps(10, /*first_step=*/5);
  pace.NoteStep(9);
  EXPECT_FALSE(pace.DueBySteps());
  pace.NoteStep(23);
  EXPECT_TRUE(pace.DueBySteps());
  pace.NoteAsked();
  EXPECT_FALSE(pace.DueBySteps()) << "10 and 20 have passed";
  pace.NoteStep(30);
  EXPECT_TRUE(pace.DueBySteps());
}

TEST(CheckpointPaceTest, ARestartGoesBackToAnEarlierStep) {
  CheckpointPace pace = BySteps(10);
  pace.NoteStep(95);
  pace.NoteAsked();
  pace.Restart(/*first_step=*/20);
  EXPECT_EQ(pace.step(), 20u);
  pace.NoteStep(20);
  EXPECT_FALSE(pace.DueBySteps());
  pace.NoteStep(31);
  EXPECT_TRUE(pace.DueBySteps());
}

TEST(CheckpointPaceTest, TheIntervalContinuesOverARestart) {
  CheckpointPace pace = ByTime(60);
  EXPECT_FALSE(pace.DueByTime(At(59)));
  EXPECT_TRUE(pace.DueByTime(At(60)));
  pace.BeginInterval(At(80));
  pace.Restart(/*first_step=*/0);
  EXPECT_FALSE(pace.DueByTime(At(139)));
  EXPECT_TRUE(pace.DueByTime(At(140)));
  EXPECT_FALSE(BySteps(10).DueByTime(absl::InfiniteFuture()));
}

TEST(CheckpointPaceTest, ALossDelaysTheNextOneAtMostByAnInterval) {
  CheckpointPace pace = ByTime(60);
  pace.NoteLoss(/*writers_stop_at=*/At(72), At(62));
  EXPECT_FALSE(pace.DueByTime(At(71)));
  EXPECT_TRUE(pace.DueByTime(At(72)));
  CheckpointPace often = ByTime(2);
  often.NoteLoss(/*writers_stop_at=*/At(13), At(3));
  EXPECT_FALSE(often.DueByTime(At(4)));
  EXPECT_TRUE(often.DueByTime(At(5)));
}

TEST(CheckpointPaceTest, AnyIntervalIsARule) {
  EXPECT_TRUE(BySteps(1).has_rules());
  EXPECT_TRUE(ByEpochs(1).has_rules());
  EXPECT_TRUE(ByTime(0.5).has_rules());
  EXPECT_FALSE(ByTime(0).has_rules());
}

}  // namespace
}  // namespace sluice
