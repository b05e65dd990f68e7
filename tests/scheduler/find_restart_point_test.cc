#include "scheduler/find_restart_point.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class FindRestartPointTest : public testing::Test {
 protected:
  FindRestartPointTest()
      : dir_(absl::StrCat(testing::TempDir(), "/find_restart_point_test.", getpid())) {
    fs::remove_all(dir_);
    record_.set_begun(true);
    record_.add_instances(7);
    record_.add_instances(9);
    JobConfig* config = record_.mutable_config();
    config->set_output_dir(dir_);
    config->set_worker_num(1);
    config->mutable_train()->set_batch_size(10);
    config->mutable_train()->set_epochs(3);
    config->mutable_strategy()->set_a_sync(false);
  }
  ~FindRestartPointTest() override { fs::remove_all(dir_); }

  std::string Make(uint64_t instance, uint64_t step, double unix_time) {
    Manifest manifest;
    manifest.set_global_step(step);
    CheckpointState* state = manifest.mutable_checkpoint();
    state->set_mode("sync");
    state->set_global_step(step);
    state->set_worker_num(1);
    state->set_global_batch(10);
    state->set_steps_done(3);
    state->set_steps_per_epoch(5);
    state->set_unix_time(unix_time);
    state->add_workers();
    const std::string dir = CheckpointFolder(dir_ + "/checkpoints", step);
    const absl::Status made = CommitCheckpoint(dir, record_.config(), manifest, Env::Real(),
                                               CheckpointSaveId(instance, step));
    EXPECT_TRUE(made.ok()) << made;
    return dir;
  }
  // The folder, "beginning", or the error.
  std::string Find() {
    const auto point = FindRestartPoint(record_, verify_, Env::Real(), Clock::Real(), &warnings_);
    if (!point.ok()) return point.status().ToString();
    return *point == nullptr ? "beginning" : (*point)->dir;
  }

  const std::string dir_;
  JobRecord record_;
  bool verify_ = true;
  std::vector<std::string> warnings_;
};

TEST_F(FindRestartPointTest, TheNewestOfItsOwnAttemptsIsTaken) {
  EXPECT_EQ(Find(), "beginning");
  Make(7, 2, 1000);
  const std::string newest = Make(9, 1, 2000);
  EXPECT_EQ(Find(), newest);
  EXPECT_TRUE(warnings_.empty());
}

TEST_F(FindRestartPointTest, TheCheckpointsOfAnEarlierJobAreNoneOfThisOnes) {
  const std::string earlier = Make(5, 2, 1000);
  EXPECT_EQ(Find(), "beginning");
  record_.set_resume_from(earlier);
  EXPECT_EQ(Find(), earlier);
  const std::string own = Make(9, 4, 2000);
  EXPECT_EQ(Find(), own);
}

TEST_F(FindRestartPointTest, ANewerOneOfAnUnrecordedAttemptDoesNotHideItsOwn) {
  const std::string own = Make(9, 2, 1000);
  const std::string unrecorded = Make(11, 4, 2000);
  EXPECT_EQ(Find(), own);
  EXPECT_TRUE(warnings_.empty());
  fs::resize_file(own + "/MANIFEST", 20);  // older than none of its own
  EXPECT_THAT(Find(), testing::HasSubstr(own));
}

TEST_F(FindRestartPointTest, WithoutVerificationNoneIsPassedOver) {
  record_.set_allow_older(true);
  const std::string older = Make(7, 2, 1000), newest = Make(7, 4, 2000);
  verify_ = false;
  EXPECT_EQ(Find(), newest);
  fs::resize_file(newest + "/MANIFEST", 20);
  EXPECT_THAT(Find(), testing::HasSubstr(newest));
  verify_ = true;
  EXPECT_EQ(Find(), older);
}

TEST_F(FindRestartPointTest, AJobThatHasNotBegunStartsWhereItWasSubmittedTo) {
  record_.set_begun(false);
  record_.clear_instances();
  const std::string earlier = Make(5, 2, 1000);
  EXPECT_EQ(Find(), "beginning");
  record_.set_resume_from(earlier);
  EXPECT_EQ(Find(), earlier);
  fs::remove_all(earlier);
  EXPECT_THAT(Find(), testing::HasSubstr(earlier));
}

TEST_F(FindRestartPointTest, ADamagedOneIsNamedOrPassedOverWhereAllowed) {
  const std::string older = Make(7, 2, 1000), newest = Make(7, 4, 2000);
  fs::resize_file(newest + "/MANIFEST", 20);
  EXPECT_THAT(Find(), testing::AllOf(testing::HasSubstr("DATA_LOSS"), testing::HasSubstr(newest)));
  record_.set_allow_older(true);
  EXPECT_EQ(Find(), older);
  EXPECT_EQ(warnings_.size(), 1);
}

TEST_F(FindRestartPointTest, AJobWithoutCheckpointsStartsAgain) {
  record_.mutable_config()->set_evaluate_only(true);
  Make(7, 2, 1000);
  EXPECT_EQ(Find(), "beginning");
}

}  // namespace
}  // namespace sluice
