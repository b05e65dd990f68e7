#include "scheduler/job/indexed_data.h"

#include <gmock/gmock.h>

#include "tests/scheduler/fake_cluster.h"

namespace sluice {
namespace {

// The report of a rank that has read a file of its own.
IndexReport ReportOfFile(uint32_t rank, uint64_t bytes) {
  IndexReport report;
  DataFile* const file = report.add_files();
  file->set_path(rank == 0 ? "a" : "b");
  file->set_bytes(bytes);
  return report;
}

TEST(IndexedDataTest, TheFilesOfAllRanksMakeTheTasksOfAnEpoch) {
  const JobConfig config = FakeCluster::Config(0, 2);
  IndexedData data(&config, 2, /*global_batch=*/1, nullptr);
  for (const uint32_t rank : {0, 1})
    ASSERT_TRUE(data.Take(rank, ReportOfFile(rank, 100 * (rank + 1))).ok());
  EXPECT_EQ(data.tasks(), nullptr);
  ASSERT_TRUE(data.End().ok());
  ASSERT_NE(data.tasks(), nullptr);
  EXPECT_FALSE(data.tasks()->tasks().empty());
  EXPECT_EQ(data.steps_per_epoch(), 0u) << "a rank ends its epoch by itself";
  data.Drop();
  EXPECT_EQ(data.tasks(), nullptr);
}

TEST(IndexedDataTest, SyncAddsUpTheExamplesOfAllPieces) {
  JobConfig config = FakeCluster::Config(-1, 2);
  config.clear_data();
  IndexedData data(&config, 2, /*global_batch=*/20, nullptr);
  ASSERT_TRUE(data.Take(1, Indexed(30, 1).index()).ok());
  ASSERT_TRUE(data.Take(0, Indexed(15, 0).index()).ok());
  ASSERT_TRUE(data.End().ok());
  EXPECT_EQ(data.examples(), 45u);
  EXPECT_EQ(data.steps_per_epoch(), 3u);
  EXPECT_EQ(data.pieces().file_size(), 2);
  EXPECT_EQ(data.tasks(), nullptr);
}

TEST(IndexedDataTest, AJobThatGoesOnIsRefusedWhenItsDataHasChanged) {
  JobConfig config = FakeCluster::Config(-1, 1);
  config.clear_data();
  ResumePoint point;
  point.dir = "/c/step-9";
  point.manifest.mutable_checkpoint()->set_steps_per_epoch(4);
  *point.manifest.mutable_checkpoint()->mutable_train_files() =
      Indexed(30, 0, 1).index().train_seen();
  IndexedData data(&config, 1, /*global_batch=*/10, &point);
  ASSERT_TRUE(data.Take(0, Indexed(30, 0, 1).index()).ok());
  const absl::Status ended = data.End();
  EXPECT_EQ(ended.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(ended.message()),
              testing::AllOf(testing::HasSubstr("/c/step-9"), testing::HasSubstr("has 3 global")));
}

}  // namespace
}  // namespace sluice
