#include "common/saved_model/unfinished_run.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/saved_model/saved_model.h"

namespace sluice {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

class UnfinishedRunTest : public testing::Test {
 protected:
  UnfinishedRunTest() {
    std::string pattern = testing::TempDir() + "/unfinished_run_test.XXXXXX";
    top_ = std::string(::mkdtemp(pattern.data())) + "/";
  }
  ~UnfinishedRunTest() override { std::filesystem::remove_all(top_); }
  // Makes checkpoint `number` of the run `instance`; later ones are newer.
  void Make(uint64_t instance, uint64_t number, uint64_t step,
            const std::string& root = "out/checkpoints", const std::string& job_output = "out") {
    Manifest manifest;
    manifest.set_global_step(step);
    manifest.mutable_checkpoint()->set_global_step(step);
    manifest.mutable_checkpoint()->set_unix_time(++time_);
    JobConfig job;
    job.set_output_dir(top_ + job_output);
    const absl::Status made = CommitCheckpoint(CheckpointFolder(top_ + root, step), job, manifest,
                                               env_, CheckpointSaveId(instance, number));
    ASSERT_TRUE(made.ok()) << made;
  }
  // `members`: further lines of the result.
  void Result(const std::string& status, const std::string& members,
              const std::string& path = "out/result.json") {
    const std::string text = absl::StrCat(
        "{\n  \"job\": \"a-1\",\n  \"mode\": \"sync\",\n  \"k_steps\": 0,\n  \"status\": \"",
        status, "\",\n  \"global_step\": 9,\n", members,
        "  \"model_dir\": \"\",\n  \"model_digest\": \"\"\n}\n");
    ASSERT_TRUE(env_->MakeDirs(top_ + path.substr(0, path.find('/'))).ok());
    ASSERT_TRUE(env_->WriteFile(top_ + path, {absl::string_view(text)}).ok());
  }
  std::string Kept(const std::string& root = "out/checkpoints") {
    const auto names = NamesOfCheckpoints(top_ + root, env_);
    return absl::StrCat("  \"kept_checkpoints\": [\"", absl::StrJoin(names, "\", \""), "\"],\n");
  }
  absl::Status Check(const std::string& root, const std::string& initial_checkpoint) {
    JobConfig job;
    job.set_output_dir(top_ + "out");
    job.set_initial_checkpoint(initial_checkpoint);
    return CheckNoUnfinishedRun(root, job, env_);
  }
  std::string Unfinished(const std::string& root = "out/checkpoints",
                         const std::string& output_dir = "out") {
    const auto found = FindUnfinished(top_ + root, top_ + output_dir, env_);
    return found ? found->dir.substr(top_.size()) : "";
  }
  Env* const env_ = Env::Real();
  std::string top_;
  double time_ = 1e9;
};

TEST_F(UnfinishedRunTest, ARunWithoutAResultHasNotFinished) {
  EXPECT_EQ(Unfinished(), "");
  EXPECT_TRUE(Check("", "").ok());
  Make(7, 1, 3328);
  Make(7, 2, 4368);
  EXPECT_EQ(Unfinished(), "out/checkpoints/step-4368");
  const absl::Status refused = Check(top_ + "out/checkpoints", "");
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("step-4368"), HasSubstr("--resume"), HasSubstr("--overwrite")));
}

TEST_F(UnfinishedRunTest, AJobThatStartsFromACheckpointOfTheFolderMayFollowIt) {
  Make(7, 1, 3328);
  Make(7, 2, 4368);
  Make(8, 1, 100, "other/checkpoints", "other");
  const std::string root = top_ + "out/checkpoints";
  for (const char* initial : {"out", "out/checkpoints/", "out/checkpoints/step-3328",
                              "other/../out/checkpoints/step-4368/"}) {
    EXPECT_TRUE(Check(root, top_ + initial).ok()) << initial;
  }
  for (const char* initial : {"other", "other/checkpoints/step-100", "none"})
    EXPECT_TRUE(absl::IsInvalidArgument(Check(root, top_ + initial))) << initial;
}

TEST_F(UnfinishedRunTest, AFailedOrCancelledRunHasNotFinished) {
  Make(7, 1, 10);
  for (const char* status : {"failed", "cancelled"}) {
    Result(status, Kept());
    EXPECT_EQ(Unfinished(), "out/checkpoints/step-10") << status;
  }
  Result("done", Kept());
  EXPECT_EQ(Unfinished(), "");
}

TEST_F(UnfinishedRunTest, CheckpointsThatCameAfterTheFinishedRunAreOfAnother) {
  Make(7, 1, 10);
  Make(7, 2, 20);
  Result("done", Kept());
  Make(8, 1, 5);
  EXPECT_EQ(Unfinished(), "out/checkpoints/step-5");
  // Its step does not tell one run from another.
  Make(8, 2, 20);
  EXPECT_EQ(Unfinished(), "out/checkpoints/step-20");
}

TEST_F(UnfinishedRunTest, ARunThatResumedAnotherFinishesItsCheckpointsToo) {
  Make(7, 1, 10);
  Make(8, 1, 20);
  Result("done", Kept());
  EXPECT_EQ(Unfinished(), "");
}

TEST_F(UnfinishedRunTest, TheResultOfAKeptModelCounts) {
  Make(7, 1, 10);
  Result("done", Kept(), "out/model_result.json");
  Result("failed", "");
  EXPECT_EQ(Unfinished(), "");
  ASSERT_TRUE(
      env_->RenameFile(top_ + "out/model_result.json", top_ + "out/replaced_result.json").ok());
  EXPECT_EQ(Unfinished(), "");
}

TEST_F(UnfinishedRunTest, ResultsHandOnTheCheckpointsOfTheFinishedRunThatTheyReplace) {
  Make(7, 1, 10);
  Result("done", Kept());
  const std::vector<std::string> kept = NamesOfCheckpoints(top_ + "out/checkpoints", env_);
  EXPECT_EQ(FinishedCheckpoints(top_ + "out/result.json", env_), kept);
  const std::string handed_on =
      absl::StrCat("  \"finished_checkpoints\": [\"", absl::StrJoin(kept, "\", \""), "\"],\n");
  for (const char* status : {"cancelled", "done"}) {
    Result(status, "  \"kept_checkpoints\": [],\n" + handed_on);
    EXPECT_EQ(Unfinished(), "") << status;
    EXPECT_EQ(FinishedCheckpoints(top_ + "out/result.json", env_), kept);
  }
  Make(8, 1, 5);
  EXPECT_EQ(Unfinished(), "out/checkpoints/step-5");
  Result("cancelled", "  \"kept_checkpoints\": [],\n");
  EXPECT_TRUE(FinishedCheckpoints(top_ + "out/result.json", env_).empty());
}

TEST_F(UnfinishedRunTest, ResultsOfEarlierVersionsNameTheStepOfTheirNewestCheckpoint) {
  Make(7, 1, 10);
  Make(7, 2, 20);
  Result("done",
         "  \"checkpoints\": { \"made\": 2, \"newest\": \"x\", \"step\": 20, \"age_s\": 1 },\n");
  EXPECT_EQ(Unfinished(), "");
  Make(8, 1, 5);
  EXPECT_EQ(Unfinished(), "out/checkpoints/step-5");
  Result("done", "  \"checkpoints\": null,\n");
  EXPECT_EQ(Unfinished(), "out/checkpoints/step-5");
}

TEST_F(UnfinishedRunTest, JobsMayShareAFolderOfCheckpoints) {
  Make(7, 1, 10, "shared", "a");
  Result("done", Kept("shared"), "a/result.json");
  EXPECT_EQ(Unfinished("shared", "b"), "");
  Make(8, 1, 30, "shared", "b");
  EXPECT_EQ(Unfinished("shared", "a"), "shared/step-30");
  Result("done", Kept("shared"), "b/result.json");
  EXPECT_EQ(Unfinished("shared", "a"), "");
}

TEST_F(UnfinishedRunTest, AFileThatIsNoResultOfOursSaysNothing) {
  Make(7, 1, 10);
  const std::string foreign = "{\n  \"status\": \"done\",\n" + Kept() + "}\n";
  ASSERT_TRUE(env_->WriteFile(top_ + "out/result.json", {absl::string_view(foreign)}).ok());
  EXPECT_EQ(Unfinished(), "out/checkpoints/step-10");
}

}  // namespace
}  // namespace sluice
