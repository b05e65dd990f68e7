#include "cli/screen/checkpoint_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "tests/common/base/hooked_env.h"
#include "tests/common/saved_model/small_saves.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;

TEST(CheckpointTextTest, AgeAndFailuresAreShown) {
  CheckpointStatus status;
  EXPECT_EQ(CheckpointAge(status), "");
  EXPECT_EQ(DescribeCheckpoints(status), "");
  status.set_failed(2);
  status.set_last_error("disk full");
  EXPECT_THAT(CheckpointAge(status), HasSubstr("2 checkpoints failed"));
  status.set_age_s(600);
  EXPECT_THAT(CheckpointAge(status), HasSubstr("10 m"));
  status.set_step(1200);
  status.set_age_s(35);
  status.set_bytes(3 << 20);
  status.set_made(4);
  status.set_dir("/out/checkpoints/step-1200");
  status.set_doing("writing step 1300");
  EXPECT_THAT(CheckpointAge(status), AllOf(HasSubstr("1,200"), HasSubstr("35 s ago")));
  EXPECT_THAT(DescribeCheckpoints(status),
              AllOf(HasSubstr("3.0 MiB"), HasSubstr("4 checkpoints made"), HasSubstr("disk full"),
                    HasSubstr("writing step 1300"), HasSubstr("/out/checkpoints/step-1200")));
}

TEST(CheckpointTextTest, ExportsSayWhatTheyAreAndWhyABaseWasNeeded) {
  ExportStatus status;
  EXPECT_EQ(DescribeExports(status), "");
  status.set_new_base("the first export of this run of the job");
  EXPECT_THAT(DescribeExports(status), HasSubstr("none yet"));
  status.set_made(3);
  status.set_bases(1);
  status.set_step(1200);
  status.set_rows(5000);
  status.set_dir("/out/export/0000000000000007-000006");
  status.set_new_base("pserver 1 was lost");
  status.set_last_error("disk full");
  EXPECT_THAT(
      DescribeExports(status),
      AllOf(HasSubstr("a delta of step 1,200"), HasSubstr("5,000 rows"), HasSubstr("1 base"),
            HasSubstr("pserver 1 was lost"), HasSubstr("disk full"), HasSubstr("000006")));
}

TEST(CheckpointTextTest, RecoveryNamesOnlyWhatHappened) {
  Recovery recovery;
  EXPECT_EQ(DescribeRecovery(recovery), "");
  recovery.set_pserver_losses(2);
  recovery.set_rollbacks(1);
  recovery.set_updates_lost(1500);
  EXPECT_EQ(DescribeRecovery(recovery),
            "2 pservers lost, 1 rollback, 1,500 updates of single shards lost");
}

class CheckpointFolderTextTest : public testing::Test {
 protected:
  CheckpointFolderTextTest()
      : dir_(absl::StrCat(testing::TempDir(), "/checkpoint_text_test.", getpid())) {
    fs::remove_all(dir_);
  }
  ~CheckpointFolderTextTest() override { fs::remove_all(dir_); }

  void Make(uint64_t step) {
    JobConfig job;
    job.set_name("adult");
    job.mutable_train()->set_epochs(8);
    Manifest manifest;
    manifest.set_job_id("adult-3");
    manifest.set_global_step(step);
    CheckpointState* state = manifest.mutable_checkpoint();
    state->set_mode("sync");
    state->set_global_step(step);
    state->set_worker_num(2);
    state->set_epoch(2);
    state->set_steps_done(7);
    for (int rank = 0; rank < 2; ++rank) state->add_workers()->mutable_train()->set_examples(40);
    state->set_steps_per_epoch(10);
    state->set_unix_time(1000.0 + step);
    const absl::Status made =
        CommitCheckpoint(Folder(step), job, manifest, Env::Real(), CheckpointSaveId(1, step));
    ASSERT_TRUE(made.ok()) << made;
  }
  // The folder of a checkpoint whose writing was cut short.
  void MakeUnfinished(uint64_t step) {
    fs::create_directories(Folder(step));
    std::ofstream(Folder(step) + "/w-0." + CheckpointSaveId(1, step) + ".shard") << "x";
  }
  std::string Folder(uint64_t step) { return CheckpointFolder(dir_ + "/checkpoints", step); }
  void Damage(uint64_t step) {
    const std::string manifest = Folder(step) + "/MANIFEST";
    std::string text = *Env::Real()->ReadFile(manifest);
    text[text.find("adult-3") + 6] = '4';
    std::ofstream(manifest) << text;
  }
  absl::Status Verify(const std::string& dir) {
    lines_.clear();
    return VerifyCheckpoints(dir, Env::Real(),
                             [this](const std::string& line) { lines_.push_back(line); });
  }

  const std::string dir_;
  const absl::Time now_ = absl::FromUnixSeconds(1100);
  std::vector<std::string> lines_;
};

TEST_F(CheckpointFolderTextTest, TheListNamesStepsAgesAndDamage) {
  EXPECT_TRUE(absl::IsNotFound(CheckpointList(dir_, Env::Real(), now_).status()));
  MakeUnfinished(20);
  const absl::Status none = CheckpointList(dir_, Env::Real(), now_).status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(std::string(none.message()), HasSubstr("step-20"));
  Make(27);
  Make(47);
  for (const std::string& dir : {dir_, dir_ + "/", dir_ + "/checkpoints"}) {
    const auto list = CheckpointList(dir, Env::Real(), now_);
    ASSERT_TRUE(list.ok()) << list.status();
    EXPECT_THAT(*list, ContainsRegex(" 47 +53 s .*complete.*\n +27 +1 m 13 s .*complete"));
  }
  MakeUnfinished(90);
  EXPECT_THAT(*CheckpointList(dir_, Env::Real(), now_),
              AllOf(ContainsRegex("27 .*complete"), ContainsRegex("unfinished.*step-90\n")));
  const auto one = CheckpointList(Folder(27), Env::Real(), now_);
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(*one, AllOf(HasSubstr(" 27 "), testing::Not(HasSubstr(" 47 "))));
  Damage(47);
  EXPECT_THAT(*CheckpointList(dir_, Env::Real(), now_),
              AllOf(ContainsRegex("27 .*complete"), ContainsRegex("damaged.*step-47/MANIFEST")));
}

// A store that does not answer.
class SilentEnv : public HookedEnv {
 public:
  bool Exists(const std::string&) override { return false; }
  absl::StatusOr<std::vector<std::string>> List(const std::string& path) override {
    return absl::InternalError(absl::StrCat("list ", path, ": no answer"));
  }
};

TEST_F(CheckpointFolderTextTest, AStoreThatDoesNotAnswerIsNoDamage) {
  SilentEnv env;
  const absl::Status status = CheckpointList("s3://bucket/job", &env, now_).status();
  EXPECT_TRUE(absl::IsInternal(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("no answer"));
}

TEST_F(CheckpointFolderTextTest, VerifyNamesTheDamagedFile) {
  EXPECT_TRUE(absl::IsNotFound(Verify(dir_)));
  Make(27);
  Make(47);
  EXPECT_TRUE(Verify(dir_).ok());
  EXPECT_EQ(lines_.size(), 2u);
  Damage(47);
  for (const std::string& dir : {dir_, Folder(47)}) {
    const absl::Status damaged = Verify(dir);
    EXPECT_TRUE(absl::IsDataLoss(damaged)) << damaged;
    EXPECT_THAT(lines_[0], HasSubstr("step-47/MANIFEST"));
  }
  EXPECT_TRUE(Verify(Folder(27)).ok());
  for (const auto& file : fs::directory_iterator(Folder(27))) {
    if (file.path().filename() == "MANIFEST") continue;
    fs::remove(file.path());  // the job's file
  }
  EXPECT_TRUE(absl::IsDataLoss(Verify(Folder(27))));
}

TEST_F(CheckpointFolderTextTest, VerifyNamesTablesThatAreNotFinite) {
  const TableLayouts tables = SmallTables();
  const std::string root = dir_ + "/checkpoints";
  const auto manifest = WriteSmallShards(
      root, tables, 27, 1, Env::Real(),
      [](std::unique_ptr<ShardCut> cut) { return std::make_unique<NotFiniteCut>(std::move(cut)); });
  ASSERT_TRUE(manifest.ok()) << manifest.status();
  ASSERT_TRUE(CommitSmallCheckpoint(root, 27, 1, *manifest, Env::Real()).ok());
  const absl::Status status = Verify(dir_);
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_THAT(lines_[0], AllOf(HasSubstr("step-27: intact, but table 'embedding' holds 2 rows"),
                               HasSubstr("cannot be resumed from")));
  EXPECT_THAT(lines_[1], HasSubstr("'bias'"));
  EXPECT_THAT(lines_[2], HasSubstr("step-27: intact"));
}

TEST_F(CheckpointFolderTextTest, ShardsWithoutAManifestAreDamage) {
  fs::create_directories(Folder(7));
  std::ofstream(Folder(7) + "/emb-0.0123456789abcdef.shard") << "x";
  EXPECT_TRUE(absl::IsDataLoss(Verify(Folder(7))));
  ASSERT_EQ(lines_.size(), 1u);
  EXPECT_THAT(lines_[0], HasSubstr("step-7/MANIFEST"));
}

TEST_F(CheckpointFolderTextTest, InspectDescribesTheJobAndItsPosition) {
  Make(27);
  Make(47);
  const auto text = DescribeCheckpoint(dir_, Env::Real(), now_);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_THAT(*text, AllOf(HasSubstr("step-47"), HasSubstr("adult-3"), HasSubstr("mode sync"),
                           HasSubstr("epoch 3 of 8"), HasSubstr("7 of 10 steps and 80 examples")));
  EXPECT_THAT(*DescribeCheckpoint(Folder(27), Env::Real(), now_), HasSubstr("step-27"));
}

TEST_F(CheckpointFolderTextTest, AModelIsNoCheckpoint) {
  ASSERT_TRUE(FinishModel(dir_ + "/model", JobConfig(), Manifest(), Env::Real()).ok());
  EXPECT_TRUE(absl::IsNotFound(Verify(dir_ + "/model")));
}

}  // namespace
}  // namespace sluice::cli
