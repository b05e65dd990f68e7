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

TEST(CheckpointPaceTest, TheNextStepIsAMultipleAfterTheFirstStep) {
  EXPECT_EQ(BySteps(10).NextDueStep(At(0)), 10u);
  EXPECT_EQ(BySteps(10, /*first_step=*/34).NextDueStep(At(0)), 40u);
  EXPECT_EQ(BySteps(10, /*first_step=*/40).NextDueStep(At(0)), 50u);
  EXPECT_EQ(BySteps(0).NextDueStep(At(0)), 0u);
}

TEST(CheckpointPaceTest, AStepThatIsReachedBeforeMembersLearnOfItIsLeftOut) {
  CheckpointPace pace = BySteps(10);
  pace.NoteStep(50, /*limit=*/1000, At(1));  // 50 steps a second, so 15 in the time of notice
  EXPECT_EQ(pace.NextDueStep(At(1)), 70u);
  EXPECT_EQ(pace.NextDueStep(At(1.2)), 80u) << "10 more have passed since the sample";
  pace.NoteStep(60, /*limit=*/1000, At(2));  // 10 steps a second
  EXPECT_EQ(pace.NextDueStep(At(2)), 70u);
}

TEST(CheckpointPaceTest, TrainingIsNotExpectedBeyondItsLimit) {
  CheckpointPace pace = BySteps(10);
  pace.NoteStep(50, /*limit=*/59, At(1));
  EXPECT_EQ(pace.NextDueStep(At(9)), 60u);
}

TEST(CheckpointPaceTest, TimeBetweenPhasesIsNoTrainingTime) {
  CheckpointPace pace = BySteps(10);
  pace.NoteStep(50, /*limit=*/50, At(1));
  pace.NoteStep(50, /*limit=*/100, At(101));  // the next phase begins
  EXPECT_EQ(pace.NextDueStep(At(101)), 70u) << "the speed is still that of the phase before";
  pace.NoteStep(70, /*limit=*/100, At(102));  // 20 steps a second
  EXPECT_EQ(pace.NextDueStep(At(102.2)), 90u) << "6 steps of notice and 4 since the sample";
}

TEST(CheckpointPaceTest, TheLastStepNeedsNoNotice) {
  CheckpointPace pace = BySteps(10);
  pace.SetSteps(/*per_epoch=*/60, /*last_step=*/60);
  pace.NoteStep(50, /*limit=*/60, At(0.5));  // 100 steps a second
  EXPECT_EQ(pace.NextDueStep(At(0.5)), 60u);
  pace.NoteStep(60, /*limit=*/60, At(1));
  EXPECT_EQ(pace.NextDueStep(At(1)), 0u);
}

TEST(CheckpointPaceTest, NoStepIsDueAfterTheLastOne) {
  CheckpointPace pace = BySteps(50);
  EXPECT_FALSE(pace.IsBeyondLast(50)) << "the last step is not known";
  EXPECT_FALSE(pace.all_steps_done());
  pace.SetSteps(/*per_epoch=*/7, /*last_step=*/49);
  EXPECT_EQ(pace.NextDueStep(At(0)), 0u);
  EXPECT_TRUE(pace.IsBeyondLast(50));
  EXPECT_FALSE(pace.IsBeyondLast(49));
  EXPECT_TRUE(pace.IsLast(49));
  EXPECT_FALSE(pace.IsLast(48));
  pace.NoteStep(48, 49, At(1));
  EXPECT_FALSE(pace.all_steps_done());
  pace.NoteStep(49, 49, At(2));
  EXPECT_TRUE(pace.all_steps_done());
}

TEST(CheckpointPaceTest, EpochsAreDueOnceTheirStepsAreKnown) {
  CheckpointPace pace = ByEpochs(2);
  EXPECT_EQ(pace.NextDueStep(At(0)), 0u);
  pace.SetSteps(/*per_epoch=*/10, /*last_step=*/100);
  EXPECT_EQ(pace.NextDueStep(At(0)), 20u);
  pace.NoteStep(20, 20, At(1));
  EXPECT_EQ(pace.NextDueStep(At(1)), 40u);
  EXPECT_FALSE(pace.DueAfterEpoch(0));
  EXPECT_TRUE(pace.DueAfterEpoch(1));
  EXPECT_FALSE(pace.DueAfterEpoch(2));
  EXPECT_FALSE(BySteps(10).DueAfterEpoch(1));
}

TEST(CheckpointPaceTest, TheEarlierOfStepsAndEpochsIsNext) {
  CheckpointConfig config;
  config.set_every_steps(25);
  config.set_every_epochs(2);
  CheckpointPace pace(config, /*first_step=*/0, At(0));
  EXPECT_EQ(pace.NextDueStep(At(0)), 25u);
  pace.SetSteps(/*per_epoch=*/10, /*last_step=*/100);
  EXPECT_EQ(pace.NextDueStep(At(0)), 20u);
  pace.NoteStep(20, 20, At(10));
  EXPECT_EQ(pace.NextDueStep(At(10)), 25u);
}

TEST(CheckpointPaceTest, AMultipleIsDueOnceAfterItHasPassed) {
  CheckpointPace pace = BySteps(10, /*first_step=*/5);
  pace.NoteStep(9, 0, At(1));
  EXPECT_FALSE(pace.DueBySteps());
  pace.NoteStep(23, 0, At(2));
  EXPECT_TRUE(pace.DueBySteps());
  pace.NoteAsked();
  EXPECT_FALSE(pace.DueBySteps()) << "10 and 20 have passed";
  pace.NoteStep(30, 0, At(3));
  EXPECT_TRUE(pace.DueBySteps());
}

TEST(CheckpointPaceTest, ARestartGoesBackToAnEarlierStep) {
  CheckpointPace pace = BySteps(10);
  pace.NoteStep(95, 1000, At(1));
  pace.NoteAsked();
  pace.Restart(/*first_step=*/20, At(5));
  EXPECT_EQ(pace.step(), 20u);
  EXPECT_EQ(pace.limit(), 20u);
  pace.NoteStep(20, 1000, At(6));
  EXPECT_EQ(pace.NextDueStep(At(6)), 30u) << "the speed before the restart counts no more";
  EXPECT_FALSE(pace.DueBySteps());
  pace.NoteStep(31, 1000, At(16));
  EXPECT_TRUE(pace.DueBySteps());
}

TEST(CheckpointPaceTest, TheIntervalContinuesOverARestart) {
  CheckpointPace pace = ByTime(60);
  EXPECT_FALSE(pace.DueByTime(At(59)));
  EXPECT_TRUE(pace.DueByTime(At(60)));
  pace.BeginInterval(At(80));
  pace.Restart(/*first_step=*/0, At(100));
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
