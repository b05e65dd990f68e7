#include "scheduler/find_resume_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "common/table/table_layout.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

class FindResumePointTest : public testing::Test {
 protected:
  FindResumePointTest()
      : dir_(absl::StrCat(testing::TempDir(), "/find_resume_point_test.", getpid())) {
    fs::remove_all(dir_);
    JobConfig* config = request_.mutable_config();
    config->set_output_dir(dir_);
    config->set_worker_num(1);
    config->mutable_train()->set_batch_size(10);
    config->mutable_train()->set_epochs(3);
    config->mutable_strategy()->set_a_sync(false);
    request_.set_resume(true);
  }
  ~FindResumePointTest() override { fs::remove_all(dir_); }

  void Make(uint64_t step, double unix_time) {
    Manifest manifest;
    manifest.set_job_id("job-1");
    manifest.set_global_step(step);
    CheckpointState* state = manifest.mutable_checkpoint();
    state->set_mode("sync");
    state->set_global_step(step);
    state->set_worker_num(1);
    state->set_global_batch(10);
    state->set_epoch(1);
    state->set_steps_done(3);
    state->set_steps_per_epoch(5);
    state->set_unix_time(unix_time);
    state->add_workers();
    const absl::Status made =
        CommitCheckpoint(CheckpointFolder(dir_ + "/checkpoints", step), request_.config(), manifest,
                         Env::Real(), CheckpointSaveId(7, step));
    ASSERT_TRUE(made.ok()) << made;
  }
  absl::StatusOr<std::unique_ptr<const ResumePoint>> Find() {
    warnings_.clear();
    return FindResumePoint(request_, Env::Real(), Clock::Real(), &warnings_);
  }

  const std::string dir_;
  SubmitJobRequest request_;
  std::vector<std::string> warnings_;
};

TEST_F(FindResumePointTest, WithoutACheckpointTheJobBeginsAndSaysSo) {
  const auto none = Find();
  ASSERT_TRUE(none.ok()) << none.status();
  EXPECT_EQ(*none, nullptr);
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr(dir_ + "/checkpoints"));
}

TEST_F(FindResumePointTest, TheNewestIsTaken) {
  Make(8, 1000);
  Make(13, 2000);
  const auto point = Find();
  ASSERT_TRUE(point.ok()) << point.status();
  ASSERT_NE(*point, nullptr);
  EXPECT_EQ((*point)->dir, dir_ + "/checkpoints/step-13");
  EXPECT_EQ((*point)->state().global_step(), 13u);
  EXPECT_EQ((*point)->initial_checkpoint, "");
  request_.mutable_config()->set_initial_checkpoint("/other");
  EXPECT_EQ((*Find())->initial_checkpoint, "") << "what the saved job started from";
  EXPECT_GT((*point)->age, absl::Hours(1));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FindResumePointTest, AnotherJobIsRefusedByItsField) {
  Make(8, 1000);
  request_.mutable_config()->mutable_train()->set_batch_size(20);
  const absl::Status refused = Find().status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("train.batch_size"));
  request_.mutable_config()->mutable_train()->set_batch_size(10);
  request_.mutable_config()->mutable_train()->set_epochs(1);
  EXPECT_THAT(std::string(Find().status().message()), HasSubstr("train.epochs"));
  request_.mutable_config()->mutable_train()->set_epochs(2);
  request_.mutable_config()->set_worker_num(4);
  EXPECT_TRUE(Find().ok());
}

TEST_F(FindResumePointTest, ADamagedOneIsNamedAndPassedOverOnlyIfAllowed) {
  Make(8, 1000);
  Make(13, 2000);
  const std::string manifest = dir_ + "/checkpoints/step-13/MANIFEST";
  std::string text = *Env::Real()->ReadFile(manifest);
  text[text.find("global_step: 13") + 13] = '2';
  std::ofstream(manifest) << text;
  const absl::Status damaged = Find().status();
  EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
  EXPECT_THAT(std::string(damaged.message()),
              testing::AllOf(HasSubstr("step-13/MANIFEST"), HasSubstr("--allow_older")));
  request_.set_allow_older(true);
  const auto older = Find();
  ASSERT_TRUE(older.ok()) << older.status();
  EXPECT_EQ((*older)->dir, dir_ + "/checkpoints/step-8");
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("step-13"));
}

TEST_F(FindResumePointTest, ASubmissionThatCannotResumeIsRefused) {
  request_.mutable_config()->clear_output_dir();
  EXPECT_TRUE(absl::IsInvalidArgument(Find().status()));
}

TEST_F(FindResumePointTest, FramesThatSomeShardsLackAreCountedAsRepeats) {
  JobConfig* config = request_.mutable_config();
  config->mutable_strategy()->set_a_sync(true);
  google::protobuf::RepeatedPtrField<TableConfig> configs;
  TableConfig* dense = configs.Add();
  dense->set_name("bias");
  dense->set_kind(TableConfig::DENSE);
  dense->add_shape(2);
  dense->mutable_optimizer()->mutable_sgd();
  dense->mutable_initializer()->set_constant(0);
  *configs.Add() = *dense;
  configs.Mutable(1)->set_name("weights");
  const TableLayouts tables = *CreateTableLayouts(configs, 1);
  const std::string dir = CheckpointFolder(dir_ + "/checkpoints", 8);
  const std::string id = CheckpointSaveId(7, 1);
  Manifest manifest;
  manifest.set_job_id("job-1");
  manifest.set_global_step(8);
  const float values[2] = {1, 2};
  for (size_t t = 0; t < tables.size(); ++t) {
    *manifest.add_tables() = tables[t]->config();
    CutState state;
    state.facts.emplace();
    for (const uint64_t rank : {0, 1}) {
      RankPosition* at = state.facts->add_ranks();
      at->set_sequence(5 + t);
      // Table 1 is a frame of 10 examples ahead. What it holds of rank 1 is of an earlier epoch.
      at->set_epoch(1 - rank);
      at->mutable_totals()->set_examples(50 + 10 * t);
    }
    const auto cut = CutOfElements(
        *tables[t], 0, {std::shared_ptr<const float>(std::shared_ptr<void>(), values)}, state);
    const auto file = WriteShardFile(dir, *tables[t], 0, cut.get(), Env::Real(), id);
    ASSERT_TRUE(file.ok()) << file.status();
    *manifest.add_files() = *file;
  }
  CheckpointState* state = manifest.mutable_checkpoint();
  state->set_mode("async");
  state->set_global_step(8);
  state->set_worker_num(2);
  state->set_epoch(1);
  state->set_task_bytes(100);
  state->add_workers()->mutable_train()->set_examples(50);
  state->add_workers();
  config->set_worker_num(2);
  const absl::Status made = CommitCheckpoint(dir, *config, manifest, Env::Real(), id);
  ASSERT_TRUE(made.ok()) << made;
  auto point = Find();
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ((*point)->examples_replayed, 10u);
  EXPECT_THAT(warnings_, IsEmpty());
  config->set_worker_num(3);
  EXPECT_TRUE(Find().ok());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(FindResumePointTest, GeoOnOtherWorkersWarnsThatOptimizerStateStartsAtZero) {
  JobConfig* config = request_.mutable_config();
  config->mutable_strategy()->set_a_sync(true);
  config->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(5);
  Manifest manifest;
  manifest.set_job_id("job-1");
  manifest.set_global_step(8);
  CheckpointState* state = manifest.mutable_checkpoint();
  state->set_mode("geo");
  state->set_worker_num(1);
  state->set_task_bytes(100);
  state->add_workers();
  const absl::Status made = CommitCheckpoint(CheckpointFolder(dir_ + "/checkpoints", 8), *config,
                                             manifest, Env::Real(), CheckpointSaveId(7, 1));
  ASSERT_TRUE(made.ok()) << made;
  ASSERT_TRUE(Find().ok()) << Find().status();
  EXPECT_THAT(warnings_, IsEmpty());
  config->set_worker_num(2);
  ASSERT_TRUE(Find().ok()) << Find().status();
  ASSERT_EQ(warnings_.size(), 1u);
  EXPECT_THAT(warnings_[0], HasSubstr("optimizer state"));
}

}  // namespace
}  // namespace sluice
