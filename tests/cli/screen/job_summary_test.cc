#include "cli/screen/job_summary.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/jobs/job_submission.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/small_job.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class JobSummaryTest : public ::testing::Test {
 protected:
  JobSummaryTest()
      : file_(::testing::TempDir() + "job_summary_test_" + std::to_string(getpid()) +
              ".textproto") {
    std::ofstream(file_) << kSmallJob;
    spec_.name = "launch";
    spec_.flags = JobFlags();
  }
  ~JobSummaryTest() override { std::remove(file_.c_str()); }

  JobConfig Job(std::vector<std::string> flags) {
    flags.insert(flags.begin(), "--job=" + file_);
    const auto command = ParseCommand(spec_, flags);
    EXPECT_TRUE(command.ok()) << command.status();
    const auto job = JobFromFlags(*command);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.ok() ? *job : JobConfig();
  }

  std::string file_;
  CommandSpec spec_;
};

TEST_F(JobSummaryTest, TheBatchesOfAStepAreNamed) {
  std::vector<std::string> flags = {"--a_sync=false", "--worker_num=2", "--batch_size=64"};
  EXPECT_THAT(Describe(Job(flags)), HasSubstr("2 workers x batch 64, "));
  flags.push_back("--set=strategy.sync_configs.gradient_merge_steps=4");
  EXPECT_THAT(Describe(Job(flags)), HasSubstr("2 workers x batch 64 x 4 merged, "));
}

TEST_F(JobSummaryTest, NotesSayWhenTheResultDiffersFromThatOfOneWorker) {
  const std::vector<std::string> sync = {"--a_sync=false", "--worker_num=2"};
  const auto with = [&](const std::string& setting) {
    std::vector<std::string> flags = sync;
    flags.push_back("--set=" + setting);
    return NotesOn(Job(flags));
  };
  EXPECT_THAT(NotesOn(Job(sync)), IsEmpty());
  EXPECT_THAT(with("optimizers.clip_global_norm=1"),
              ElementsAre(AllOf(HasSubstr("2 workers"), HasSubstr("clip_global_norm"))));
  EXPECT_THAT(with("data.assignment=PER_RANK_FILES"), ElementsAre(HasSubstr("PER_RANK_FILES")));
  EXPECT_THAT(with("data.task_bytes=4096"), ElementsAre(HasSubstr("data.task_bytes 4096")));
  EXPECT_THAT(NotesOn(Job({"--worker_num=2", "--set=optimizers.clip_global_norm=1",
                           "--set=data.task_bytes=4096"})),
              IsEmpty());
}

TEST_F(JobSummaryTest, NotesSayWhenLanesHaveNoEffectOrAreSharedUnevenly) {
  EXPECT_THAT(NotesOn(Job({"--set=data.shuffle_lanes=8", "--set=data.shuffle_window=9"})),
              ElementsAre(HasSubstr("data.shuffle_lanes"), HasSubstr("data.shuffle_window")));
  EXPECT_THAT(NotesOn(Job({"--a_sync=false", "--worker_num=3"})),
              ElementsAre(HasSubstr("shuffle_lanes 64")));
  EXPECT_THAT(NotesOn(Job({"--a_sync=false", "--worker_num=3", "--set=data.shuffle_lanes=6"})),
              IsEmpty());
}

TEST_F(JobSummaryTest, NoteSaysThatAnEarlierResultIsReplaced) {
  const std::string folder = file_ + ".out";
  EXPECT_THAT(NotesOn(Job({"--output_dir=" + folder})), IsEmpty());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/result.json") << "{}";
  EXPECT_THAT(NotesOn(Job({"--output_dir=" + folder})),
              ElementsAre(HasSubstr("earlier result in " + folder)));
  std::filesystem::remove_all(folder);
}

TEST_F(JobSummaryTest, JobWithManyFeaturesIsPrintedInAFewLines) {
  const JobConfig job = Job({"--set=features={name: 'f{1..500}' numeric {}}", "--set=optimizers={}",
                             "--set=model={wide_deep {hidden_units: 2}}"});
  ASSERT_EQ(job.features_size(), 500);
  std::ostringstream out;
  PrintJob("head", job, &out);
  const std::string text = out.str();
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 5);
  EXPECT_THAT(text, AllOf(HasSubstr("head\n"), HasSubstr("500 features"), Not(HasSubstr("f7"))));
}

TEST_F(JobSummaryTest, ModelIsDescribedByItsTables) {
  // Wide: 1 weight and the bias; deep: (4 + 1) x 8 and 8, then 8 and 1.
  EXPECT_THAT(DescribeModel(Job({})), AllOf(HasSubstr("wide_deep, 2 features"),
                                            HasSubstr(" 59 dense values"), HasSubstr(" 5 values")));
}

TEST_F(JobSummaryTest, SeveralSparseTablesAreListedWithTheirFeatures) {
  EXPECT_THAT(DescribeSparseTables(Job({})), IsEmpty());
  const JobConfig job =
      Job({"--set=features=[{name: 'c{1..10}' categorical {}}, "
           "{name: 'item' categorical {} key: RAW embedding_dim: 16}]"});
  EXPECT_THAT(DescribeSparseTables(job),
              ElementsAre(AllOf(HasSubstr("embedding"), HasSubstr(" 5 values"),
                                HasSubstr("c1, c2, c3, c4, c5, c6, c7, c8 and 2 more")),
                          AllOf(HasSubstr("table item"), HasSubstr(" 17 values"))));
  EXPECT_THAT(DescribeModel(job), HasSubstr("2 sparse tables"));
  std::ostringstream out;
  PrintJob("head", job, &out);
  EXPECT_THAT(out.str(), HasSubstr("\ntable item: "));
}

TEST_F(JobSummaryTest, ASingleSparseTableIsListedIfAFeatureNamesIt) {
  EXPECT_THAT(DescribeSparseTables(Job({"--set=features=[{name: 'a' categorical {} table: 't'}, "
                                        "{name: 'b' categorical {} table: 't'}]"})),
              ElementsAre(AllOf(HasSubstr("table t: "), HasSubstr("for a, b"))));
}

TEST_F(JobSummaryTest, NotesSayHowManyRowsOfSeveralTablesAWorkerKeeps) {
  const std::string two =
      "--set=features=[{name: 'a' categorical {}}, {name: 'b' categorical {} table: 't'}]";
  const std::string geo = "--k_steps=5", rows = "--set=strategy.a_sync_configs.geo_cache_rows=3000",
                    hot = "--set=strategy.a_sync_configs.hot_row_cache={rows: 400}";
  EXPECT_THAT(NotesOn(Job({two, geo})),
              ElementsAre(AllOf(HasSubstr("geo_cache_rows"), HasSubstr("2 sparse tables"),
                                HasSubstr("20,000,000 rows"))));
  EXPECT_THAT(NotesOn(Job({two, geo, rows})), ElementsAre(HasSubstr("6,000 rows")));
  EXPECT_THAT(NotesOn(Job({two, hot})),
              ElementsAre(AllOf(HasSubstr("hot_row_cache.rows"), HasSubstr("800 rows"))));
  // Nothing is kept, or the limit is that of the only table.
  EXPECT_THAT(NotesOn(Job({two})), IsEmpty());
  EXPECT_THAT(NotesOn(Job({geo})), IsEmpty());
  EXPECT_THAT(NotesOn(Job({hot})), IsEmpty());
}

TEST_F(JobSummaryTest, NotesSayHowManyRowsAGiBIs) {
  EXPECT_THAT(
      NotesOn(Job({"--set=tables=[{name: 'embedding' max_gib: 0.5}]"})),
      ElementsAre(AllOf(HasSubstr("max_gib 0.5"), HasSubstr("embedding"), HasSubstr(" rows of "))));
}

TEST_F(JobSummaryTest, DataIsDescribedByItsFilesOrByTheirNames) {
  const std::string data = file_ + ".csv";
  EXPECT_THAT(DescribeData(Job({"--set=data.train_files=" + data})),
              AllOf(HasSubstr("CSV"), HasSubstr(data)));
  std::ofstream(data) << std::string(2048, 'x');
  EXPECT_THAT(DescribeData(Job({"--set=data.train_files=" + data, "--set=data.eval_files=/e.csv"})),
              AllOf(HasSubstr("train on 1 file (2.0 KiB)"), HasSubstr("evaluate on /e.csv")));
  std::remove(data.c_str());
}

TEST_F(JobSummaryTest, EffectiveConfigurationIsInTheOutputFolder) {
  EXPECT_THAT(DescribeOutput(Job({"--output_dir=/out"}), "good-1"),
              AllOf(HasSubstr("output: /out;"), HasSubstr(" /out/job.textproto")));
  EXPECT_THAT(DescribeOutput(Job({}), "good-7"), HasSubstr(" output/good-7/job.textproto"));
}

}  // namespace
}  // namespace sluice::cli
