#include "cli/jobs/resume_hint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/jobs/job_submission.h"

namespace sluice::cli {
namespace {

using testing::EndsWith;
using testing::HasSubstr;

class ResumeHintTest : public testing::Test {
 protected:
  ResumeHintTest() {
    status_.set_job_id("shop-1");
    status_.set_state(JOB_CANCELLED);
    status_.mutable_config()->set_output_dir("/data/output/shop-1");
    status_.mutable_checkpoint()->set_dir("/d/checkpoints/step-7");
  }
  std::string Hint(const std::vector<std::string>& args) {
    CommandSpec spec;
    spec.name = "launch";
    spec.flags = JobFlags();
    const auto command = ParseCommand(spec, args);
    EXPECT_TRUE(command.ok()) << command.status();
    return ResumeHint("launch", *command, job_, status_);
  }
  JobConfig job_;
  JobStatus status_;
};

TEST_F(ResumeHintTest, ArgumentsOfAProgramStayBehindTheFlags) {
  job_.set_output_dir("/d");
  CommandSpec spec;
  spec.name = "launch";
  spec.flags = JobFlags();
  spec.max_words = 10;
  const auto command = ParseCommand(spec, {"--output_dir=/d", "--", "--epochs", "3"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_THAT(ResumeHint("launch", *command, job_, status_),
              EndsWith("sluice launch --output_dir=/d --resume -- --epochs 3"));
}

TEST_F(ResumeHintTest, AScriptThatHasStartedTheCommandIsRunAgain) {
  CommandSpec spec;
  spec.name = "launch";
  spec.flags = JobFlags();
  spec.flags.push_back({"progress_fd", FlagKind::kNumber, "N", "", ""});
  const auto command = ParseCommand(spec, {"--progress_fd=5"});
  ASSERT_TRUE(command.ok()) << command.status();
  EXPECT_THAT(ResumeHint("launch", *command, job_, status_),
              EndsWith("step-7: run the script again with resume=True and with "
                       "/data/output/shop-1 as the job's output folder"));
}

TEST_F(ResumeHintTest, TheCommandIsGivenAgainWithResume) {
  job_.set_output_dir("/d");
  const std::string hint =
      Hint({"--job=J.textproto", "--output_dir", "/d", "--set", "a.b={c: 'x'}"});
  EXPECT_THAT(hint, HasSubstr("step-7"));
  EXPECT_THAT(hint, EndsWith("\n  sluice launch --job=J.textproto --output_dir /d --set "
                             "'a.b={c: '\\''x'\\''}' --resume"));
  EXPECT_THAT(Hint({"--job=J", "--resume"}), EndsWith("sluice launch --job=J --resume"));
}

TEST_F(ResumeHintTest, AFolderThatTheJobDidNotNameIsAdded) {
  EXPECT_THAT(Hint({"--job=J"}),
              EndsWith("sluice launch --job=J --output_dir=/data/output/shop-1 --resume"));
}

TEST_F(ResumeHintTest, WithoutACheckpointThereIsNothingToContinue) {
  status_.clear_checkpoint();
  EXPECT_THAT(Hint({"--job=J"}), HasSubstr("no checkpoint"));
  status_.set_state(JOB_DONE);
  EXPECT_EQ(Hint({"--job=J"}), "");
}

TEST(WhyNothingIsSavedTest, NamesTheSetting) {
  JobConfig job;
  EXPECT_EQ(WhyNothingIsSaved(job), "");
  job.mutable_checkpoint()->set_keep(0);
  EXPECT_THAT(WhyNothingIsSaved(job), HasSubstr("checkpoint.keep"));
  job.set_evaluate_only(true);
  EXPECT_THAT(WhyNothingIsSaved(job), HasSubstr("evaluates"));
}

TEST(ShellWordTest, OnlyPlainWordsStayAsTheyAre) {
  EXPECT_EQ(ShellWord("--set=train.epochs=3"), "--set=train.epochs=3");
  EXPECT_EQ(ShellWord(""), "''");
  EXPECT_EQ(ShellWord("a b"), "'a b'");
  EXPECT_EQ(ShellWord("*.csv"), "'*.csv'");
  EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace sluice::cli
