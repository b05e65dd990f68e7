#include "scheduler/find_resume_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"

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

}  // namespace
}  // namespace sluice
