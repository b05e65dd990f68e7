#include "model/resume_match.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

JobConfig JobToResume() {
  JobConfig config;
  config.set_worker_num(2);
  config.mutable_train()->set_epochs(3);
  config.mutable_strategy()->set_a_sync(false);
  return config;
}

Manifest State() {
  Manifest manifest;
  CheckpointState* state = manifest.mutable_checkpoint();
  state->set_mode("sync");
  state->set_worker_num(2);
  state->set_global_batch(20);
  state->set_epoch(1);
  state->set_steps_done(4);
  state->set_steps_per_epoch(5);
  state->add_workers();
  state->add_workers();
  return manifest;
}

absl::Status CheckOf(const Manifest& manifest, const JobConfig& job) {
  return CheckResumeState("/c/step-9", manifest, job);
}

TEST(CheckResumeStateTest, AFittingJobMayResume) {
  EXPECT_TRUE(CheckOf(State(), JobToResume()).ok());
  JobConfig more_workers = JobToResume();
  more_workers.set_worker_num(5);
  EXPECT_TRUE(CheckOf(State(), more_workers).ok());
}

TEST(CheckResumeStateTest, AJobThatEndsBeforeTheCheckpointIsRefused) {
  JobConfig config = JobToResume();
  config.mutable_train()->set_epochs(2);
  EXPECT_TRUE(CheckOf(State(), config).ok());
  config.mutable_train()->set_epochs(1);
  const absl::Status refused = CheckOf(State(), config);
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("train.epochs is 1"), HasSubstr("initial_checkpoint=/c/step-9")));
}

TEST(CheckResumeStateTest, FilesOfARankNeedTheSameRanks) {
  JobConfig config = JobToResume();
  config.mutable_data()->set_assignment(DataConfig::PER_RANK_FILES);
  EXPECT_TRUE(CheckOf(State(), config).ok());
  config.set_worker_num(3);
  EXPECT_THAT(std::string(CheckOf(State(), config).message()),
              AllOf(HasSubstr("--worker_num=2"), HasSubstr("initial_checkpoint=/c/step-9")));
}

TEST(CheckResumeStateTest, AStateThatContradictsItselfIsDamage) {
  for (int what = 0; what < 5; ++what) {
    Manifest manifest = State();
    CheckpointState* state = manifest.mutable_checkpoint();
    if (what == 0) state->mutable_workers()->RemoveLast();
    if (what == 1) state->set_steps_done(6);
    if (what == 2) state->set_global_batch(0);
    if (what == 3) state->set_mode("geo");
    if (what == 4) manifest.clear_checkpoint();
    EXPECT_TRUE(absl::IsDataLoss(CheckOf(manifest, JobToResume()))) << what;
  }
}

TEST(CheckResumeStateTest, AsyncNeedsItsTasks) {
  Manifest manifest = State();
  CheckpointState* state = manifest.mutable_checkpoint();
  state->set_mode("async");
  state->clear_global_batch();
  state->clear_steps_done();
  state->clear_steps_per_epoch();
  JobConfig config = JobToResume();
  config.mutable_strategy()->set_a_sync(true);
  EXPECT_TRUE(absl::IsDataLoss(CheckOf(manifest, config)));
  state->set_task_bytes(64);
  EXPECT_TRUE(CheckOf(manifest, config).ok());
}

}  // namespace
}  // namespace sluice
