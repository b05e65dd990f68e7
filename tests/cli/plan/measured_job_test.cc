#include "cli/plan/measured_job.h"

#include <gtest/gtest.h>

#include "model/built_in_models.h"
#include "model/without_pservers.h"
#include "tests/cli/plan/planned_job.h"

namespace sluice::plan {
namespace {

absl::StatusOr<JobConfig> Measured(const JobConfig& job, Mode mode) {
  return MeasuredJob(job, mode, 50, {"/tmp/s/part-1"}, "/tmp/s");
}

TEST(MeasuredJobTest, ReadsTheSampleWithOneWorkerAndSavesNothing) {
  const auto job = Measured(
      PlannedJob(
          "worker_num: 7 output_dir: '/o' checkpoint { every_steps: 5 } recovery { replicas: 1 }"),
      Mode::kAsync);
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->worker_num(), 1u);
  EXPECT_EQ(job->data().train_files(0), "/tmp/s/part-1");
  EXPECT_EQ(job->data().train_files_size(), 1);
  EXPECT_EQ(job->data().eval_files_size(), 0);
  EXPECT_EQ(job->output_dir(), "/tmp/s/output");
  EXPECT_EQ(job->checkpoint().every_steps(), 0u);
  EXPECT_EQ(job->checkpoint().every_s(), 0);
  EXPECT_FALSE(job->checkpoint().at_end());
  EXPECT_FALSE(job->checkpoint().save_final_model());
  EXPECT_EQ(job->recovery().replicas(), 0u);
  EXPECT_EQ(job->train().log_every(), 1u);
}

TEST(MeasuredJobTest, KeepsTheOptionsOfItsOwnMode) {
  const JobConfig job = PlannedJob(
      "strategy { a_sync: true a_sync_configs { hot_row_cache {} } } train { pipeline_depth: 3 }");
  const auto measured = Measured(job, Mode::kAsync);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_TRUE(measured->strategy().a_sync_configs().has_hot_row_cache());
  EXPECT_EQ(measured->train().pipeline_depth(), 3u);
}

TEST(MeasuredJobTest, DropsTheOptionsOfOtherModes) {
  const JobConfig async = PlannedJob(
      "strategy { a_sync: true a_sync_configs { max_staleness: 4 } } train { pipeline_depth: 3 }");
  const auto geo = Measured(async, Mode::kGeo);
  ASSERT_TRUE(geo.ok()) << geo.status();
  EXPECT_EQ(ModeOf(geo->strategy()), Mode::kGeo);
  EXPECT_EQ(KSteps(geo->strategy()), 50u);
  const JobConfig sync =
      PlannedJob("strategy { a_sync: false sync_configs { on_worker_loss: SHRINK } }");
  const auto as_async = Measured(sync, Mode::kAsync);
  ASSERT_TRUE(as_async.ok()) << as_async.status();
  EXPECT_EQ(ModeOf(as_async->strategy()), Mode::kAsync);
}

constexpr char kCollective[] =
    "strategy { a_sync: false sync_configs { dense: COLLECTIVE engine: GLOO comm_num: 2 "
    "gradient_merge_steps: 3 on_worker_loss: SHRINK } }";

TEST(MeasuredJobTest, ACollectiveJobIsPlannedAsOne) {
  EXPECT_EQ(PlanModeOf(PlannedJob(kCollective)), PlanMode::kCollective);
  EXPECT_EQ(PlanModeOf(PlannedJob("strategy { a_sync: false }")), PlanMode::kSync);
  EXPECT_EQ(PlanModeOf(PlannedJob("")), PlanMode::kAsync);
}

TEST(MeasuredJobTest, TheDenseTablesOfACollectiveJobAreMeasuredOnPservers) {
  const JobConfig job = PlannedJob(kCollective);
  const auto measured = Measured(job, Mode::kSync);
  ASSERT_TRUE(measured.ok()) << measured.status();
  const SyncConfigs& sync = measured->strategy().sync_configs();
  EXPECT_EQ(ModeOf(measured->strategy()), Mode::kSync);
  EXPECT_EQ(sync.dense(), SyncConfigs::PSERVER);
  EXPECT_EQ(sync.gradient_merge_steps(), 3u) << "what a step has stays";
  const auto needs_none = NeedsNoPservers(BuiltInSpecs(), *measured);
  ASSERT_TRUE(needs_none.ok()) << needs_none.status();
  EXPECT_FALSE(*needs_none);
  EXPECT_TRUE(Measured(job, Mode::kGeo).ok());
}

constexpr char kMixedTables[] =
    "strategy { a_sync: false sync_configs { comm_num: 2 } } "
    "tables { name: 'deep/0/weight' update_at: COLLECTIVE optimizer { sgd {} } } ";

TEST(MeasuredJobTest, AMixedJobIsMeasuredOnPserversAndPlannedAsACollectiveOne) {
  const JobConfig job = PlannedJob(kMixedTables);
  EXPECT_EQ(PlanModeOf(job), PlanMode::kCollective);
  const auto measured = Measured(job, Mode::kSync);
  ASSERT_TRUE(measured.ok()) << measured.status();
  EXPECT_EQ(PlanModeOf(*measured), PlanMode::kSync);
  EXPECT_FALSE(measured->strategy().sync_configs().has_comm_num());
  EXPECT_TRUE(Measured(job, Mode::kGeo).ok());
}

TEST(MeasuredJobTest, AJobThatTrainsNothingIsRefused) {
  JobConfig job = PlannedJob("");
  job.set_evaluate_only(true);
  EXPECT_EQ(Measured(job, Mode::kAsync).status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice::plan
