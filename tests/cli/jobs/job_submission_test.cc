#include "cli/jobs/job_submission.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "tests/cli/small_job.h"
#include "tests/common/base/fake_clock.h"
#include "tests/common/daemon/refusing_scheduler.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class JobFlagsTest : public ::testing::Test {
 protected:
  JobFlagsTest()
      : file_(::testing::TempDir() + "job_flags_test_" + std::to_string(getpid()) + ".textproto") {
    std::ofstream(file_) << kSmallJob;
    spec_.name = "launch";
    spec_.flags = JobFlags();
  }
  ~JobFlagsTest() override { std::remove(file_.c_str()); }

  absl::StatusOr<JobConfig> Load(std::vector<std::string> flags) {
    flags.insert(flags.begin(), "--job=" + file_);
    const auto command = ParseCommand(spec_, flags);
    if (!command.ok()) return command.status();
    return JobFromFlags(*command);
  }
  JobConfig Job(std::vector<std::string> flags) {
    const auto job = Load(std::move(flags));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : JobConfig();
  }
  absl::StatusOr<SubmitJobRequest> Submit(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"--job=" + file_, "--a_sync=false"});
    const auto command = ParseCommand(spec_, flags);
    EXPECT_TRUE(command.ok()) << command.status();
    const auto job = JobFromFlags(*command);
    EXPECT_TRUE(job.ok()) << job.status();
    return SubmissionFromFlags(*command, *job);
  }

  std::string file_;
  CommandSpec spec_;
};

TEST_F(JobFlagsTest, ModelProblemsAreFoundWithoutAClusterAndNameTheJobFile) {
  std::ofstream(file_, std::ios::app)
      << "features { name: 'x' cross { features: ['job', 'jab'] } }";
  EXPECT_THAT(std::string(Load({}).status().message()),
              AllOf(StartsWith(file_ + ":7: "), HasSubstr("\"jab\"")));
  std::ofstream(file_) << kSmallJob << "tables { name: 'deep/9/weight' }";
  const absl::Status unknown_table = Load({}).status();
  EXPECT_EQ(unknown_table.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(unknown_table.message()),
              AllOf(StartsWith(file_ + ":7: "), HasSubstr("deep/9/weight")));
  EXPECT_THAT(std::string(Load({"--set=tables={name: 'deep/9/weight'}"}).status().message()),
              AllOf(StartsWith("--set: tables: "), HasSubstr("deep/9/weight")));
}

TEST_F(JobFlagsTest, ShortOptionsReachTheirFields) {
  const JobConfig job = Job({"--max_staleness=2", "--gradients_to_wait=3"});
  EXPECT_EQ(job.strategy().a_sync_configs().max_staleness(), 2u);
  EXPECT_EQ(job.strategy().a_sync_configs().gradients_to_wait(), 3u);
  EXPECT_EQ(Job({"--trace=/t.json"}).trace_file(), "/t.json");
  EXPECT_THAT(std::string(Load({"--a_sync=false", "--max_staleness=2"}).status().message()),
              HasSubstr("--max_staleness: strategy.a_sync_configs.max_staleness: 2"));
}

TEST_F(JobFlagsTest, PathsInFlagsOfAProgramAreRelativeToTheCurrentFolder) {
  const std::string here = std::filesystem::current_path().string();
  std::ofstream(file_) << absl::StrReplaceAll(kSmallJob, {{"t.csv", "/data/t.csv"}});
  const auto load = [&](const std::vector<std::string>& flags) {
    const auto job = JobOfProgram(file_, *ParseCommand(spec_, flags));
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(JobConfig());
  };
  EXPECT_EQ(load({}).data().train_files(0), "/data/t.csv");
  const JobConfig job =
      load({"--set=data={format: CSV csv { header: true } label { column: 'y' } "
            "train_files: ['x.csv', '/y.csv'] eval_files: 'e.csv'}"});
  EXPECT_THAT(job.data().train_files(), ElementsAre(here + "/x.csv", "/y.csv"));
  EXPECT_THAT(job.data().eval_files(), ElementsAre(here + "/e.csv"));
  EXPECT_THAT(load({"--set=data.train_files=a b.csv,sub/\"c.csv"}).data().train_files(),
              ElementsAre(here + "/a b.csv", here + "/sub/\"c.csv"));
  EXPECT_EQ(load({"--set=initial_model=old/model"}).initial_model(), here + "/old/model");
  EXPECT_EQ(load({"--set=data.cache_dir=cache", "--epochs=2"}).data().cache_dir(), here + "/cache");
  // A file of --job has its own folder.
  EXPECT_NE(Job({"--set=data.train_files=x.csv"}).data().train_files(0), here + "/x.csv");
}

TEST_F(JobFlagsTest, TwoFlagsMayNotContradictEachOther) {
  const absl::Status refused = Load({"--set=train.epochs=5", "--epochs=3"}).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused));
  EXPECT_THAT(std::string(refused.message()),
              AllOf(HasSubstr("--epochs=3"), HasSubstr("--set train.epochs=5")));
  EXPECT_FALSE(Load({"--overwrite", "--set=overwrite=false"}).ok());
  EXPECT_EQ(Job({"--set=train.epochs=3", "--epochs=3"}).train().epochs(), 3u);
  // The last one counts, as in other commands.
  EXPECT_EQ(Job({"--epochs=3", "--epochs=4"}).train().epochs(), 4u);
  EXPECT_EQ(Job({"--set=train.epochs=3", "--set=train.epochs=4"}).train().epochs(), 4u);
}

TEST_F(JobFlagsTest, ReaderProblemsAreFoundWithoutACluster) {
  EXPECT_THAT(
      std::string(Load({"--set=data={format: LIBSVM train_files: 't'}"}).status().message()),
      AllOf(StartsWith(file_ + ": "), HasSubstr("column")));
}

TEST_F(JobFlagsTest, ALimitThatIsTooSmallForTheShardsIsFoundWithoutACluster) {
  const auto table = [](const std::string& options) {
    return absl::StrCat("--set=tables={name: 'embedding' ", options, "}");
  };
  EXPECT_THAT(std::string(Load({table("max_rows: 15")}).status().message()),
              AllOf(HasSubstr("\"embedding\""), HasSubstr("15"), HasSubstr("max_rows to 16")));
  EXPECT_TRUE(Load({table("max_rows: 16")}).ok());
  const std::string evicts = table("max_rows: 255 evict {}");
  EXPECT_THAT(std::string(Submit({evicts}).status().message()), HasSubstr("max_rows to 256"));
  EXPECT_TRUE(Submit({table("max_rows: 256 evict {}")}).ok());
  // The number of the checkpoint counts.
  EXPECT_TRUE(Submit({evicts, "--resume", "--output_dir=/o"}).ok());
  EXPECT_TRUE(Submit({evicts, "--set=initial_checkpoint=/c"}).ok());
}

TEST_F(JobFlagsTest, WildcardMatchesTheColumnsOfTheFirstFile) {
  const std::string data = file_ + ".csv";
  std::ofstream(data) << "y,n_b,other,n_a\n1,2,3,4\n";
  const std::vector<std::string> flags = {"--set=data.train_files=" + data,
                                          "--set=features={name: 'n_*' categorical {}}"};
  std::vector<std::string> names;
  const JobConfig job = Job(flags);
  for (const Feature& feature : job.features()) names.push_back(feature.name());
  EXPECT_THAT(names, ElementsAre("n_b", "n_a"));
  EXPECT_THAT(
      std::string(Load({flags[0], "--set=features={name: 'm_*' numeric {}}"}).status().message()),
      AllOf(StartsWith("--set: features[0].name: 'm_*'"), HasSubstr("n_b, other, n_a")));
  std::remove(data.c_str());
  EXPECT_THAT(std::string(Load(flags).status().message()), HasSubstr(data));
}

TEST_F(JobFlagsTest, ANumberOfShardsThatNewTablesCannotHaveIsFoundWithoutACluster) {
  for (const char* rule :
       {"expire { after_steps: 9 }", "max_gib: 1 evict {}", "admit { after: 2 }"}) {
    const auto table = [rule](int shards) {
      return absl::StrCat("--set=tables={name: 'embedding' num_shards: ", shards, " ", rule, "}");
    };
    const absl::Status refused = Submit({table(64)}).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    EXPECT_THAT(std::string(refused.message()),
                AllOf(HasSubstr("\"embedding\""), HasSubstr("num_shards is 64"), HasSubstr("256"),
                      HasSubstr("remove num_shards")));
    EXPECT_TRUE(Submit({table(256)}).ok());
    // The number of the checkpoint counts.
    EXPECT_TRUE(Submit({table(64), "--resume", "--output_dir=/o"}).ok());
    EXPECT_TRUE(Submit({table(64), "--set=initial_checkpoint=/c"}).ok());
  }
  EXPECT_TRUE(Submit({"--set=tables={name: 'embedding' num_shards: 64}"}).ok());
}

TEST_F(JobFlagsTest, ResumeReachesTheSubmission) {
  const auto plain = Submit({});
  ASSERT_TRUE(plain.ok()) << plain.status();
  EXPECT_FALSE(plain->resume());
  EXPECT_EQ(plain->config().name(), "good");
  const auto resume = Submit({"--resume", "--allow_older", "--output_dir=/o"});
  ASSERT_TRUE(resume.ok()) << resume.status();
  EXPECT_TRUE(resume->resume());
  EXPECT_TRUE(resume->allow_older());
  EXPECT_TRUE(absl::IsInvalidArgument(Submit({"--resume"}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Submit({"--allow_older"}).status()));
}

// Answers the calls in turn, and remembers their ids.
class SubmissionScheduler : public RefusingScheduler {
 public:
  explicit SubmissionScheduler(std::vector<absl::Status> answers) : answers_(std::move(answers)) {}
  absl::StatusOr<SubmitJobReply> SubmitJobAs(const std::string& request_id,
                                             const SubmitJobRequest&) override {
    const absl::Status answer = answers_.at(ids_.size());
    ids_.push_back(request_id);
    if (!answer.ok()) return answer;
    SubmitJobReply reply;
    reply.set_job_id("job-1");
    return reply;
  }

  std::vector<std::string> ids_;

 private:
  const std::vector<absl::Status> answers_;
};

const absl::Status kSilent = absl::UnavailableError("silent");

TEST(SubmitJobTest, ACallWithoutAnAnswerIsRepeatedWithItsId) {
  SubmissionScheduler scheduler({kSilent, kSilent, absl::OkStatus()});
  int checks = 0;
  FakeClock clock;
  const auto check = [&] {
    ++checks;
    return absl::OkStatus();
  };
  const auto reply = SubmitJob(&scheduler, {}, absl::Minutes(1), check, &clock);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->job_id(), "job-1");
  EXPECT_EQ(checks, 2);
  EXPECT_EQ(std::set<std::string>(scheduler.ids_.begin(), scheduler.ids_.end()).size(), 1);
  EXPECT_NE(scheduler.ids_[0], "");
}

TEST(SubmitJobTest, OtherSubmissionsHaveOtherIds) {
  SubmissionScheduler scheduler({absl::OkStatus(), absl::OkStatus()});
  FakeClock clock;
  ASSERT_TRUE(SubmitJob(&scheduler, {}, absl::Minutes(1), nullptr, &clock).ok());
  ASSERT_TRUE(SubmitJob(&scheduler, {}, absl::Minutes(1), nullptr, &clock).ok());
  EXPECT_NE(scheduler.ids_[0], scheduler.ids_[1]);
}

TEST(SubmitJobTest, ARefusalAndABrokenClusterEndIt) {
  FakeClock clock;
  SubmissionScheduler refuses({absl::InvalidArgumentError("no")});
  const auto refused = SubmitJob(&refuses, {}, absl::Minutes(1), nullptr, &clock);
  EXPECT_TRUE(absl::IsInvalidArgument(refused.status()));
  SubmissionScheduler silent({kSilent});
  const auto dead = [] { return absl::InternalError("dead"); };
  EXPECT_TRUE(absl::IsInternal(SubmitJob(&silent, {}, absl::Minutes(1), dead, &clock).status()));
}

TEST(SubmitJobTest, CallsEndWithThePatience) {
  FakeClock clock;
  const absl::Time start = clock.Now();
  SubmissionScheduler silent(std::vector<absl::Status>(100, kSilent));
  const auto reply = SubmitJob(&silent, {}, absl::Seconds(3), nullptr, &clock);
  EXPECT_TRUE(absl::IsUnavailable(reply.status()));
  EXPECT_EQ(clock.Now() - start, absl::Seconds(3));
  EXPECT_GT(silent.ids_.size(), 1u);
}

TEST(SubmissionSizeTest, AJobThatNoSchedulerTakesIsRefusedWithTheLimit) {
  SubmitJobRequest request;
  CategoricalFeature* const feature =
      request.mutable_config()->add_features()->mutable_categorical();
  for (int i = 0; i < 100'000; ++i) feature->add_vocabulary("word-" + std::to_string(i));
  EXPECT_TRUE(CheckSubmissionSize(request).ok()) << CheckSubmissionSize(request);
  for (int i = 0; i < 2'000'000; ++i) feature->add_vocabulary("word-" + std::to_string(i));
  const absl::Status refused = CheckSubmissionSize(request);
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  EXPECT_THAT(refused.message(), HasSubstr("16777216"));
}

}  // namespace
}  // namespace sluice::cli
