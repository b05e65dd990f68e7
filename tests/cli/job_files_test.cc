#include "cli/job_files.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

class JobFilesTest : public testing::Test {
 protected:
  JobFilesTest()
      : dir_(testing::TempDir() + "job_files." +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    std::filesystem::create_directories(dir_);
    std::ofstream(dir_ + "/train-1.csv") << "1\n";
    job_.mutable_data()->add_train_files(dir_ + "/train-*.csv");
    job_.set_output_dir(dir_ + "/a/b");
  }
  std::string Refusal() {
    const absl::Status status = CheckJobFiles(job_, dir_ + "/output");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  const std::string dir_;
  JobConfig job_;
};

TEST_F(JobFilesTest, ReadableDataAndAnOutputThatCanBeMadePassAndLeaveNothing) {
  EXPECT_TRUE(CheckJobFiles(job_, "").ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/a"));
  job_.clear_output_dir();
  EXPECT_TRUE(CheckJobFiles(job_, dir_ + "/output").ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/output"));
  std::filesystem::create_directories(dir_ + "/a");
  job_.set_output_dir(dir_ + "/a/b");
  EXPECT_TRUE(CheckJobFiles(job_, "").ok());
  EXPECT_TRUE(std::filesystem::is_empty(dir_ + "/a"));
}

TEST_F(JobFilesTest, MissingDataIsNamedWithItsField) {
  job_.mutable_data()->add_eval_files(dir_ + "/none*.csv");
  EXPECT_THAT(Refusal(),
              HasSubstr("data.eval_files: no data file matches \"" + dir_ + "/none*.csv\""));
  job_.mutable_data()->add_train_files(dir_ + "/gone.csv");
  EXPECT_THAT(Refusal(), HasSubstr("data.train_files: no data file matches"));
  job_.set_evaluate_only(true);  // reads no training data
  EXPECT_THAT(Refusal(), HasSubstr("data.eval_files"));
}

TEST_F(JobFilesTest, AFolderThatIsNoSavedModelIsRefused) {
  for (const std::string& folder : {dir_, dir_ + "/nothing"}) {
    job_.set_initial_model(folder);
    EXPECT_THAT(Refusal(), HasSubstr("initial_model: " + folder + " is no saved model"));
  }
}

TEST_F(JobFilesTest, AnOutputBelowAFileIsRefused) {
  for (const std::string& output :
       std::vector<std::string>{dir_ + "/train-1.csv", dir_ + "/train-1.csv/below/it"}) {
    job_.set_output_dir(output);
    EXPECT_THAT(Refusal(), HasSubstr("output_dir: cannot write to " + output));
    const absl::Status of_submit = CheckOutputIsNoFile(job_);
    EXPECT_EQ(of_submit.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(of_submit.message()), HasSubstr("train-1.csv is a file"));
  }
  job_.set_output_dir(dir_ + "/new/folder");
  EXPECT_TRUE(CheckOutputIsNoFile(job_).ok());
  job_.clear_output_dir();
  EXPECT_TRUE(CheckOutputIsNoFile(job_).ok());
}

TEST_F(JobFilesTest, ATraceIsTriedAsTheOutputIs) {
  job_.set_trace_file(dir_ + "/new/folder/trace.json");
  EXPECT_TRUE(CheckJobFiles(job_, "").ok());
  EXPECT_TRUE(CheckOutputIsNoFile(job_).ok());
  EXPECT_FALSE(std::filesystem::exists(dir_ + "/new"));
  for (const std::string& file : {dir_, dir_ + "/train-1.csv/trace.json"}) {
    job_.set_trace_file(file);
    EXPECT_THAT(Refusal(), HasSubstr("trace_file: cannot write " + file));
    EXPECT_THAT(std::string(CheckOutputIsNoFile(job_).message()), HasSubstr("trace_file"));
  }
  job_.set_trace_file("/proc/sluice-trace");
  EXPECT_THAT(Refusal(), HasSubstr("give a writable --trace=FILE"));
}

TEST_F(JobFilesTest, WhatTheKernelDoesNotAllowIsRefused) {
  job_.set_output_dir("/proc/sluice-output");
  EXPECT_THAT(Refusal(), HasSubstr("give a writable --output_dir"));
}

}  // namespace
}  // namespace sluice::cli
