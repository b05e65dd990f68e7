#include "scheduler/job/early_ending.h"

#include <optional>

#include "gtest/gtest.h"

namespace sluice {
namespace {

Phase Training(uint64_t steps) {
  Phase phase;
  phase.set_kind(Phase::TRAIN);
  phase.set_global_steps(steps);
  return phase;
}

EarlyEnd After(uint64_t step) {
  EarlyEnd end;
  end.set_last_step(step);
  return end;
}

TEST(EarlyEndingTest, SyncCutsThePhaseThatHasTheLastStep) {
  EarlyEnding ending(/*sync=*/true, std::nullopt);
  Phase phase = Training(5);
  ending.Cut(10, &phase);
  EXPECT_EQ(phase.global_steps(), 5u) << "nobody has ended it";
  EXPECT_FALSE(ending.EndsWith(phase, 15));
  ending.Set(After(12));
  ending.Cut(10, &phase);
  EXPECT_EQ(phase.global_steps(), 2u);
  EXPECT_TRUE(ending.EndsWith(phase, 12));
  phase = Training(5);
  ending.Cut(5, &phase);
  EXPECT_EQ(phase.global_steps(), 5u) << "the job went back: the step is in the next epoch";
  EXPECT_FALSE(ending.EndsWith(phase, 10));
  ending.Cut(12, &phase);
  EXPECT_EQ(phase.global_steps(), 0u) << "it was the last one of the epoch before";
  phase = Training(5);
  ending.Cut(15, &phase);
  EXPECT_EQ(phase.global_steps(), 0u) << "it was in the epoch before";
}

TEST(EarlyEndingTest, AsyncEndsWithAnyTrainingPhase) {
  EarlyEnding ending(/*sync=*/false, After(0));
  Phase phase = Training(0);
  ending.Cut(0, &phase);
  EXPECT_TRUE(ending.EndsWith(phase, 0));
  phase.set_kind(Phase::EVAL);
  EXPECT_FALSE(ending.EndsWith(phase, 0));
}

TEST(EarlyEndingTest, ARankMayBeOneStepAheadOfTheLastOne) {
  const EarlyEnding ending(/*sync=*/true, After(12));
  const Phase phase = Training(2);
  EXPECT_FALSE(ending.IsAhead(12, phase, 12));
  EXPECT_TRUE(ending.IsAhead(13, phase, 12));
  EXPECT_FALSE(ending.IsAhead(14, phase, 12)) << "an impossible report";
  EXPECT_FALSE(ending.IsAhead(11, phase, 10)) << "the epoch before";
}

TEST(EarlyEndingTest, OnlyAStepThatARankCanHaveMadeIsTaken) {
  const EarlyEnding sync(/*sync=*/true, std::nullopt);
  EXPECT_TRUE(sync.Check(After(3), Training(5), 3, 8).ok());
  EXPECT_TRUE(sync.Check(After(8), Training(5), 3, 8).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(sync.Check(After(2), Training(5), 3, 8)));
  EXPECT_TRUE(absl::IsInvalidArgument(sync.Check(After(9), Training(5), 3, 8)));
  Phase evaluation;
  evaluation.set_kind(Phase::EVAL);
  EXPECT_TRUE(absl::IsFailedPrecondition(sync.Check(After(3), evaluation, 3, 8)));
  EXPECT_TRUE(EarlyEnding(false, std::nullopt).Check(After(0), Training(0), 3, 8).ok());
}

}  // namespace
}  // namespace sluice
