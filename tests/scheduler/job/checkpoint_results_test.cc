#include "scheduler/job/checkpoint_results.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using ::testing::HasSubstr;

class CheckpointResultsTest : public testing::Test {
 protected:
  static absl::Time At(int seconds) { return absl::UnixEpoch() + absl::Seconds(seconds); }
  static Manifest Of(uint64_t step, uint64_t bytes) {
    Manifest manifest;
    manifest.set_global_step(step);
    manifest.add_files()->set_bytes(bytes);
    return manifest;
  }

  CheckpointResults results_{"/ckpt", At(0)};
};

TEST_F(CheckpointResultsTest, TheNewestStaysWhenTheNextIsGivenUp) {
  EXPECT_EQ(results_.status(/*has_rules=*/false, At(5)).age_s(), 0);
  EXPECT_EQ(results_.status(/*has_rules=*/true, At(5)).age_s(), 5);
  results_.Complete(1, Of(10, 100), /*instance=*/7, At(10), At(12));
  results_.GiveUp({2, 20, "the disk is full", 7}, /*counts=*/true, /*followed_by=*/3, At(20));
  const CheckpointStatus status = results_.status(/*has_rules=*/false, At(30));
  EXPECT_EQ(status.step(), 10u);
  EXPECT_EQ(status.bytes(), 100u);
  EXPECT_EQ(status.seconds(), 2);
  EXPECT_EQ(status.age_s(), 20);
  EXPECT_EQ(status.made(), 1u);
  EXPECT_EQ(status.failed(), 1u);
  EXPECT_THAT(status.last_error(), HasSubstr("step 20 failed: the disk is full"));
  EXPECT_THAT(results_.TakeWarning(), HasSubstr("the job continues"));
  EXPECT_EQ(results_.TakeWarning(), "");
  EXPECT_EQ(results_.newest_manifest()->global_step(), 10u);
  EXPECT_EQ(results_.newest_instance(), 7u);
  EXPECT_EQ(results_.Followed(2), 3u);
  EXPECT_EQ(results_.OutcomeOf(2)->error, "the disk is full");
  EXPECT_EQ(results_.OutcomeOf(3), nullptr);
}

TEST_F(CheckpointResultsTest, FilesOfWhatWasGivenUpGoTwice) {
  results_.GiveUp({2, 20, "a loss", 7}, /*counts=*/false, 0, At(20));
  results_.DiscardFiles({4, 30, "a loss", 7, /*is_export=*/true}, At(21));
  EXPECT_EQ(results_.status(false, At(21)).failed(), 0u);
  std::vector<CheckpointResults::Discard> due = results_.TakeDiscards(At(21), /*all=*/false);
  ASSERT_EQ(due.size(), 2u);
  EXPECT_EQ(due[0].number, 2u);
  EXPECT_EQ(due[0].why, "a loss");
  EXPECT_TRUE(due[1].is_export);
  EXPECT_TRUE(results_.TakeDiscards(At(29), false).empty()) << "writers may still be at work";
  due = results_.TakeDiscards(At(30), false);
  ASSERT_EQ(due.size(), 1u);
  EXPECT_EQ(due[0].why, "") << "it was told";
  EXPECT_EQ(results_.TakeDiscards(At(30), /*all=*/true).size(), 1u);
}

TEST_F(CheckpointResultsTest, AnEndThatTheRunReachesAgainHasNoCheckpoint) {
  Manifest end = Of(10, 1);
  end.mutable_checkpoint()->set_epoch(3);  // of async, with no open task
  results_.Complete(1, end, 7, At(1), At(2));
  EXPECT_TRUE(results_.IsOfEnd(3));
  EXPECT_TRUE(results_.IsOfStep(10));
  results_.GoBack(10);
  EXPECT_TRUE(results_.IsOfEnd(3)) << "the run begins after it";
  results_.GoBack(9);
  EXPECT_FALSE(results_.IsOfEnd(3));
  EXPECT_FALSE(results_.IsOfStep(10));
}

TEST_F(CheckpointResultsTest, FewOutcomesAreRemembered) {
  for (uint64_t number = 1; number <= 17; ++number) results_.Skip(number, "overtaken", number + 1);
  EXPECT_EQ(results_.OutcomeOf(1), nullptr);
  EXPECT_EQ(results_.Followed(2), 18u);
}

}  // namespace
}  // namespace sluice
