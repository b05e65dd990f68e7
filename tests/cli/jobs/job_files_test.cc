#include "cli/jobs/job_files.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"
#include "common/saved_model/saved_model.h"
#include "common/saved_model/shard_file.h"
#include "model/built_in_models.h"

namespace sluice::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class JobFilesTest : public testing::Test {
 protected:
  JobFilesTest()
      : dir_(testing::TempDir() + "job_files." +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    std::ofstream(dir_ + "/train-1.csv") << "y,x\n1,1\n";
    job_.mutable_data()->add_train_files(dir_ + "/train-*.csv");
    job_.mutable_data()->set_format(DataConfig::CSV);
    job_.mutable_data()->mutable_csv()->set_header(true);
    job_.mutable_data()->mutable_label()->set_column("y");
    Feature* feature = job_.add_features();
    feature->set_name("x");
    feature->mutable_numeric();
    job_.mutable_model()->mutable_wide_deep()->add_hidden_units(4);
    job_.set_output_dir(dir_ + "/a/b");
  }
  absl::Status Check(const std::string& output) {
    return CheckJobFiles(job_, output, Env::Real(), &data_);
  }
  std::string Refusal() {
    const absl::Status status = Check(dir_ + "/output");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  const std::string dir_;
  JobConfig job_;
  DataCheckReport data_;
};

TEST_F(JobFilesTest, ReadableDataAndWritableOutputPassAndLeaveNothingBehind) {
  EXPECT_TRUE(Check("").ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/a"));
  job_.clear_output_dir();
  EXPECT_TRUE(Check(dir_ + "/output").ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/output"));
  std::filesystem::create_directories(dir_ + "/a");
  job_.set_output_dir(dir_ + "/a/b");
  EXPECT_TRUE(Check("").ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/a"));
}

TEST_F(JobFilesTest, LocalDataMustExistButMayBelongToAnotherUser) {
  EXPECT_TRUE(CheckDataIsHere(job_).ok());
  job_.mutable_data()->add_eval_files(dir_ + "/none*.csv");
  const absl::Status status = CheckDataIsHere(job_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("data.eval_files"), HasSubstr("none*.csv")));
  job_.mutable_data()->clear_train_files();
  job_.mutable_data()->clear_eval_files();
  job_.mutable_data()->add_train_files(dir_ + "/none.csv");
  EXPECT_FALSE(CheckDataIsHere(job_).ok());
  job_.set_evaluate_only(true);
  EXPECT_TRUE(CheckDataIsHere(job_).ok()) << "the job reads no training data";
}

TEST_F(JobFilesTest, FileNamedBySeveralEntriesIsAWarning) {
  SubmitJobRequest request;
  *request.mutable_config() = job_;
  EXPECT_TRUE(WarningsOf(request, Env::Real()).empty());
  request.mutable_config()->mutable_data()->add_train_files(dir_ + "/train-1.csv");
  EXPECT_EQ(WarningsOf(request, Env::Real()).size(), 1u);
}

TEST_F(JobFilesTest, MissingDataIsNamedWithItsField) {
  job_.mutable_data()->add_eval_files(dir_ + "/none*.csv");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("data.eval_files: "), HasSubstr(dir_ + "/none*.csv"),
                               HasSubstr("the folder of the job file")));
  *job_.mutable_initial_model() = dir_ + "/none";
  JobConfig of_program = job_;
  of_program.mutable_model()->mutable_program();
  of_program.mutable_data()->clear_eval_files();
  std::swap(job_, of_program);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("initial_model: "), HasSubstr(dir_ + "/none"),
                               HasSubstr("base_dir= of its sluice.Job")));
  job_.mutable_data()->add_eval_files(dir_ + "/none*.csv");
  EXPECT_THAT(Refusal(),
              AllOf(HasSubstr(dir_ + "/none*.csv"), HasSubstr("base_dir= of its sluice.Job")));
  std::swap(job_, of_program);
  job_.clear_initial_model();
  job_.mutable_data()->add_train_files(dir_ + "/gone.csv");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("data.train_files: "), HasSubstr("/gone.csv")));
  job_.set_evaluate_only(true);  // reads no training data
  EXPECT_THAT(Refusal(), HasSubstr("data.eval_files"));
}

TEST_F(JobFilesTest, MissingColumnIsNamedWithFieldFileAndClosestName) {
  std::ofstream(dir_ + "/test.csv") << "y,xx,z\n1,1,1\n";
  job_.mutable_data()->add_eval_files(dir_ + "/test.csv");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("data.eval_files: "), HasSubstr(dir_ + "/test.csv"),
                               HasSubstr("no column \"x\""), HasSubstr("did you mean \"xx\"?")));
  EXPECT_EQ(CheckWhatIsHere(job_, Env::Real()).code(), absl::StatusCode::kInvalidArgument);
  std::ofstream(dir_ + "/train-1.csv") << "label,x\n1,1\n";
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("data.train_files: "), HasSubstr(dir_ + "/train-1.csv")));
  job_.set_evaluate_only(true);
  EXPECT_THAT(Refusal(), HasSubstr("data.eval_files"));
}

TEST_F(JobFilesTest, AllProblemsOfTheDataAreInOneListAndAllowedOnesAreWarnings) {
  std::ofstream(dir_ + "/train-1.csv") << "y,x\n1,1\n1,a\n1,b\nno,2\n0,1\n";
  std::ofstream(dir_ + "/train-2.csv") << "y,z\n1,1\n";
  const std::string all = Refusal();
  EXPECT_THAT(all, AllOf(HasSubstr("train-2.csv has no column \"x\""), HasSubstr("train-1.csv:3: "),
                         HasSubstr("train-1.csv:5: ")));
  EXPECT_THAT(all, testing::Not(HasSubstr("train-1.csv:4: "))) << "the same problem as in line 3";
  EXPECT_LT(all.find("train-2.csv"), all.find("train-1.csv:3: "));
  std::filesystem::remove(dir_ + "/train-2.csv");
  job_.mutable_data()->set_max_bad_lines(3);
  EXPECT_TRUE(Check("").ok());
  EXPECT_EQ(data_.warnings.size(), 2u);
}

TEST_F(JobFilesTest, PipesAndSocketsAreNoData) {
  ASSERT_EQ(mkfifo((dir_ + "/train-pipe.csv").c_str(), 0600), 0);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("data.train_files: "), HasSubstr("is a pipe"),
                               HasSubstr("copy it to a file")));
}

TEST_F(JobFilesTest, FilesMissingHereAreLeftToTheWorkers) {
  job_.mutable_data()->add_train_files(dir_ + "/gone.csv");
  job_.mutable_data()->add_eval_files(dir_ + "/none*.csv");
  job_.set_initial_model(dir_ + "/nothing");
  EXPECT_TRUE(CheckWhatIsHere(job_, Env::Real()).ok());
}

TEST_F(JobFilesTest, FolderWithoutASavedModelIsRefused) {
  for (const std::string& folder : {dir_, dir_ + "/nothing"}) {
    job_.set_initial_model(folder);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("initial_model: " + folder), HasSubstr("job file")));
  }
}

TEST_F(JobFilesTest, ModelWithOtherTablesIsRefused) {
  const auto job = EffectiveJobConfig(job_, dir_, BuiltInSpecs());
  ASSERT_TRUE(job.ok()) << job.status();
  job_ = *job;
  job_.set_initial_model(dir_ + "/model");
  EXPECT_TRUE(CheckWhatIsHere(job_, Env::Real()).ok());  // no model is there yet
  Manifest none;
  none.set_version(1);
  ASSERT_TRUE(FinishModel(dir_ + "/model", job_, none, Env::Real()).ok());
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("initial_model: table '"), HasSubstr(dir_ + "/model"),
                               HasSubstr(" more tables")));
  EXPECT_EQ(CheckWhatIsHere(job_, Env::Real()), Check(dir_));
}

TEST_F(JobFilesTest, AFolderWithoutACheckpointIsRefusedUnlessTheJobResumes) {
  job_.set_initial_checkpoint(dir_ + "/nothing");
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("initial_checkpoint: "), HasSubstr(dir_ + "/nothing"),
                               HasSubstr("job file")));
  SubmitJobRequest request;
  *request.mutable_config() = job_;
  EXPECT_EQ(JobToCheck(request).initial_checkpoint(), dir_ + "/nothing");
  request.set_resume(true);
  EXPECT_EQ(JobToCheck(request).initial_checkpoint(), "");
}

TEST_F(JobFilesTest, OutputBelowAFileIsRefused) {
  for (const std::string& output :
       std::vector<std::string>{dir_ + "/train-1.csv", dir_ + "/train-1.csv/below/it"}) {
    job_.set_output_dir(output);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("output_dir: "), HasSubstr(output)));
    const absl::Status of_submit = CheckOutputIsNoFile(job_);
    EXPECT_EQ(of_submit.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(of_submit.message()), HasSubstr("train-1.csv"));
  }
  job_.set_output_dir(dir_ + "/new/folder");
  EXPECT_TRUE(CheckOutputIsNoFile(job_).ok());
  job_.clear_output_dir();
  EXPECT_TRUE(CheckOutputIsNoFile(job_).ok());
}

TEST_F(JobFilesTest, TraceFileIsCheckedLikeTheOutput) {
  job_.set_trace_file(dir_ + "/new/folder/trace.json");
  EXPECT_TRUE(Check("").ok());
  EXPECT_TRUE(CheckOutputIsNoFile(job_).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/new"));
  for (const std::string& file : {dir_, dir_ + "/train-1.csv/trace.json"}) {
    job_.set_trace_file(file);
    EXPECT_THAT(Refusal(), AllOf(HasSubstr("trace_file: "), HasSubstr(file)));
    EXPECT_THAT(std::string(CheckOutputIsNoFile(job_).message()), HasSubstr("trace_file"));
  }
  job_.set_trace_file("/proc/sluice-trace");
  EXPECT_THAT(Refusal(), HasSubstr("--trace=FILE"));
}

TEST_F(JobFilesTest, UnwritableOutputIsRefused) {
  job_.set_output_dir("/proc/sluice-output");
  EXPECT_THAT(Refusal(), HasSubstr("--output_dir"));
}

class CanResumeTest : public JobFilesTest {
 protected:
  CanResumeTest() {
    request_.set_resume(true);
    job_.mutable_train()->set_epochs(3);
    job_.mutable_train()->set_batch_size(10);
    job_.set_worker_num(1);
    *request_.mutable_config() = *EffectiveJobConfig(job_, "", BuiltInSpecs());
  }
  // Gives the job a sparse table; returns its options.
  TableConfig* AddEmbedding() {
    Feature* const feature = job_.add_features();
    feature->set_name("z");
    feature->mutable_categorical();
    job_.mutable_model()->mutable_wide_deep()->set_embedding_dim(2);
    TableConfig* const table = job_.add_tables();
    table->set_name("embedding");
    return table;
  }
  // A checkpoint of the job in its second epoch. `shards`: of its sparse table.
  void Make(uint32_t shards = 0) {
    const std::string folder = CheckpointFolder(dir_ + "/a/b/checkpoints", 8);
    Manifest manifest;
    if (shards > 0) {
      TableConfig* const table = manifest.add_tables();
      table->set_name("embedding");
      table->set_kind(TableConfig::SPARSE);
      table->set_num_shards(shards);
      std::filesystem::create_directories(folder);
      for (uint32_t shard = 0; shard < shards; ++shard) {
        const std::string name = ShardFileName("embedding", shard, CheckpointSaveId(7, 1));
        manifest.add_files()->set_name(name);
        std::ofstream(folder + "/" + name).flush();
      }
    }
    CheckpointState* state = manifest.mutable_checkpoint();
    state->set_mode("async");
    state->set_worker_num(1);
    state->set_epoch(1);
    state->set_task_bytes(64);
    state->add_workers();
    const absl::Status made =
        CommitCheckpoint(folder, request_.config(), manifest, Env::Real(), CheckpointSaveId(7, 1));
    ASSERT_TRUE(made.ok()) << made;
  }
  std::string ResumeRefusal() {
    const absl::Status refused = CheckCanResume(request_, Env::Real());
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
    return std::string(refused.message());
  }

  SubmitJobRequest request_;
};

TEST_F(CanResumeTest, ADryRunWarnsThatThereIsNoCheckpoint) {
  EXPECT_TRUE(CheckCanResume(request_, Env::Real()).ok());
  EXPECT_THAT(WarningsOf(request_, Env::Real()), ElementsAre(HasSubstr("no checkpoint")));
  request_.set_resume(false);
  EXPECT_THAT(WarningsOf(request_, Env::Real()), IsEmpty());
}

TEST_F(CanResumeTest, AJobThatDoesNotFitTheCheckpointIsRefused) {
  Make();
  EXPECT_TRUE(CheckCanResume(request_, Env::Real()).ok());
  EXPECT_THAT(WarningsOf(request_, Env::Real()), IsEmpty());
  request_.mutable_config()->mutable_train()->set_epochs(1);
  EXPECT_THAT(ResumeRefusal(), HasSubstr("train.epochs is 1"));
  request_.set_resume(false);
  EXPECT_TRUE(CheckCanResume(request_, Env::Real()).ok());
  request_.set_resume(true);
  request_.mutable_config()->mutable_train()->set_epochs(3);
  request_.mutable_config()->mutable_train()->set_batch_size(11);
  // The first way out keeps the checkpoint.
  EXPECT_THAT(ResumeRefusal(), testing::ContainsRegex(
                                   "train.batch_size.*value of the checkpoint's job.*"
                                   "initial_checkpoint=.*/a/b/checkpoints/step-8, .*--overwrite"));
}

TEST_F(CanResumeTest, ShardsOfATableWhoseRowsGoAreThoseOfTheCheckpoint) {
  TableConfig* const table = AddEmbedding();
  table->mutable_expire()->set_after_steps(9);
  *request_.mutable_config() = *EffectiveJobConfig(job_, "", BuiltInSpecs());
  Make(/*shards=*/2);
  for (const uint32_t shards : {0u, 2u}) {
    request_.mutable_config()->mutable_tables(0)->set_num_shards(shards);
    const absl::Status fits = CheckCanResume(request_, Env::Real());
    EXPECT_TRUE(fits.ok()) << fits;
  }
  request_.mutable_config()->mutable_tables(0)->set_num_shards(256);
  EXPECT_THAT(ResumeRefusal(), AllOf(HasSubstr("num_shards is 256"), HasSubstr("has 2;")));
  request_.mutable_config()->mutable_tables(0)->clear_num_shards();
  request_.mutable_config()->mutable_tables(0)->set_max_rows(2);
  EXPECT_TRUE(CheckCanResume(request_, Env::Real()).ok());
  request_.mutable_config()->mutable_tables(0)->set_max_rows(1);
  EXPECT_THAT(ResumeRefusal(), HasSubstr("raise max_rows to 2 "));
}

TEST_F(CanResumeTest, WithoutACheckpointTheTablesAreThoseOfANewJob) {
  TableConfig* const table = AddEmbedding();
  table->set_max_rows(2);
  table->mutable_evict();
  *request_.mutable_config() = *EffectiveJobConfig(job_, "", BuiltInSpecs());
  EXPECT_THAT(ResumeRefusal(), HasSubstr("raise max_rows to 256 "));
  request_.mutable_config()->set_initial_checkpoint("/c");
  EXPECT_TRUE(CheckCanResume(request_, Env::Real()).ok());
}

TEST_F(CanResumeTest, ADamagedCheckpointIsRefused) {
  Make();
  std::ofstream(dir_ + "/a/b/checkpoints/step-8/MANIFEST") << "damaged";
  EXPECT_THAT(ResumeRefusal(), HasSubstr("step-8/MANIFEST"));
}

}  // namespace
}  // namespace sluice::cli
