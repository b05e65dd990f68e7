#include "scheduler/step_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

JobConfig Config(uint32_t batch_size) {
  JobConfig config;
  config.mutable_train()->set_batch_size(batch_size);
  return config;
}

TEST(StepCountsTest, GlobalBatchesOfAllSharesRoundUpOrDown) {
  JobConfig config = Config(10);
  EXPECT_EQ(*SyncSteps(config, {70, 30}), 5u);
  EXPECT_EQ(*SyncSteps(config, {0, 101}), 6u);
  config.mutable_data()->set_drop_last(true);
  EXPECT_EQ(*SyncSteps(config, {19, 100}), 5u);
}

TEST(StepCountsTest, OwnFilesTakeTheLargestCount) {
  JobConfig config = Config(10);
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  EXPECT_EQ(*SyncSteps(config, {0, 101, 10}), 11u);
  config.mutable_data()->set_drop_last(true);
  EXPECT_EQ(*SyncSteps(config, {0, 101, 10}), 10u);
}

TEST(StepCountsTest, WhereAllLinesAreBadTheFirstAreNamed) {
  BadLines bad;
  bad.count = 3;
  bad.first = {"a.csv:1: the label is \"x\""};
  const absl::Status status = NoExamples(bad);
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(
      std::string(status.message()),
      testing::HasSubstr("has no examples, only 3 malformed lines, the first 1: a.csv:1: the "
                         "label is \"x\"; give other data.train_files"));
}

TEST(StepCountsTest, NothingToTrainIsAnError) {
  EXPECT_FALSE(SyncSteps(Config(10), {0, 0}).ok());
  JobConfig config = Config(10);
  config.mutable_data()->set_drop_last(true);
  EXPECT_THAT(std::string(SyncSteps(config, {5, 5}).status().message()),
              testing::HasSubstr("drop_last"));
}

}  // namespace
}  // namespace sluice
