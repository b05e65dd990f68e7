#include "cli/jobs/output_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/file_origin.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

class OutputFilesTest : public testing::Test {
 protected:
  OutputFilesTest() {
    std::string pattern = testing::TempDir() + "/output_files_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
    job_file_ = Write("my.textproto", "name: \"mine\"\n");
    job_.mutable_data()->add_train_files(Write("data/train-1.csv", "1\n"));
    job_.mutable_data()->add_eval_files(dir_ + "/data/*.csv");
    job_.set_initial_model(dir_ + "/model");
    Write("model/MANIFEST", "version: 1\nmodel_digest: \"0\"\n");
    Write("model/job.textproto", kOwnConfigLine);
    job_.set_output_dir(dir_ + "/out");
  }
  ~OutputFilesTest() override { fs::remove_all(dir_); }
  std::string Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(dir_ + "/" + name).parent_path());
    std::ofstream(dir_ + "/" + name) << text;
    return dir_ + "/" + name;
  }
  // Expects a refusal that names `file`; with --overwrite only if `despite_overwrite`.
  void ExpectRefused(const std::string& file, bool despite_overwrite) {
    job_.set_overwrite(false);
    const absl::Status refused = CheckJobOutputs(job_, job_file_, Env::Real());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument) << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr(file));
    job_.set_overwrite(true);
    EXPECT_EQ(CheckJobOutputs(job_, job_file_, Env::Real()).ok(), !despite_overwrite);
    EXPECT_EQ(CheckJobKeepsInputs(job_, job_file_, Env::Real()).ok(), !despite_overwrite);
  }

  std::string dir_, job_file_;
  JobConfig job_;
};

TEST_F(OutputFilesTest, NewFolderAndFolderOfSluicePass) {
  EXPECT_TRUE(CheckJobOutputs(job_, job_file_, Env::Real()).ok());
  Write("out/job.textproto", kOwnConfigLine);
  Write("out/model/MANIFEST", "version: 1\nmodel_digest: \"0\"\n");
  Write("out/model/job.textproto", kOwnConfigLine);
  EXPECT_TRUE(CheckJobOutputs(job_, job_file_, Env::Real()).ok());
  // A job may replace the model that it starts from.
  job_.set_initial_model(dir_ + "/out/model");
  EXPECT_TRUE(CheckJobOutputs(job_, job_file_, Env::Real()).ok());
  job_.clear_output_dir();
  EXPECT_TRUE(CheckJobOutputs(job_, job_file_, Env::Real()).ok());
}

TEST_F(OutputFilesTest, JobFileIsNeverReplaced) {
  // The output reaches the job file by its path, by a link to its folder, or by a hard link. The
  // job file is refused even when Sluice wrote it.
  for (const char* text : {"name: \"mine\"\n", kOwnConfigLine}) {
    job_file_ = Write("own/job.textproto", text);
    job_.set_output_dir(dir_ + "/own");
    ExpectRefused("own/job.textproto", true);
    fs::remove(dir_ + "/link");
    fs::create_directory_symlink(dir_ + "/own", dir_ + "/link");
    job_.set_output_dir(dir_ + "/link/");
    ExpectRefused("job.textproto", true);
  }
  fs::create_directories(dir_ + "/hard");
  fs::create_hard_link(job_file_, dir_ + "/hard/result.json");
  job_.set_output_dir(dir_ + "/hard");
  ExpectRefused("hard/result.json", true);
}

TEST_F(OutputFilesTest, ForeignFilesAreReplacedOnlyWithOverwrite) {
  for (const char* name : {"job.textproto", "result.json", "model_result.json", "model/MANIFEST",
                           "model/job.textproto"}) {
    fs::remove_all(dir_ + "/out");
    const std::string file = Write(std::string("out/") + name, "mine");
    ExpectRefused(file, false);
  }
  fs::remove_all(dir_ + "/out");
  job_.set_trace_file(Write("trace.json", "mine"));
  ExpectRefused(job_.trace_file(), false);
}

TEST_F(OutputFilesTest, ModelFolderIsRefusedAsOutputFolder) {
  job_.clear_initial_model();
  job_.set_output_dir(dir_ + "/model/");
  for (const bool overwrite : {false, true}) {
    job_.set_overwrite(overwrite);
    const absl::Status refused = CheckJobOutputs(job_, job_file_, Env::Real());
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("model/MANIFEST"));
  }
}

TEST_F(OutputFilesTest, JobFileInTheModelIsNeverReplaced) {
  job_file_ = Write("out/model/job.textproto", kOwnConfigLine);
  Write("out/model/MANIFEST", "version: 1\nmodel_digest: \"0\"\n");
  job_.set_initial_model(dir_ + "/out/model");
  ExpectRefused("out/model/job.textproto", true);
}

TEST_F(OutputFilesTest, TraceMustNotReplaceAnInputOrAnotherOutput) {
  for (const std::string& input :
       {dir_ + "/data/train-1.csv", dir_ + "/model/MANIFEST", job_file_}) {
    job_.set_trace_file(input);
    ExpectRefused(input, true);
  }
  job_.set_trace_file(dir_ + "/out/../out/result.json");
  ExpectRefused("result.json", true);
  job_.set_trace_file(dir_ + "/out/trace.json");
  EXPECT_TRUE(CheckJobOutputs(job_, job_file_, Env::Real()).ok());
}

TEST_F(OutputFilesTest, OutputFileMustBeNewUnlessOverwriteIsGiven) {
  const std::vector<InputFile> inputs = {{"a file of --data", dir_ + "/data/train-1.csv"}};
  const auto check = [&](const std::string& path, bool overwrite) {
    return CheckOutputFile("--output", path, overwrite, inputs, Env::Real());
  };
  EXPECT_TRUE(check(dir_ + "/scores", false).ok());
  const std::string there = Write("scores", "0.5\n");
  EXPECT_EQ(check(there, false).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(check(there, false).message()),
              AllOf(HasSubstr(there), HasSubstr("--overwrite")));
  EXPECT_TRUE(check(there, true).ok());
  fs::create_symlink(inputs[0].path, dir_ + "/link");
  for (const bool overwrite : {false, true}) {
    EXPECT_FALSE(check(inputs[0].path, overwrite).ok());
    EXPECT_FALSE(check(dir_ + "/link", overwrite).ok());
    EXPECT_FALSE(check(dir_ + "/./data/train-1.csv", overwrite).ok());
  }
  ASSERT_EQ(::mkfifo((dir_ + "/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(check(dir_ + "/pipe", false).ok());
  EXPECT_TRUE(check("/dev/null", false).ok());
}

TEST_F(OutputFilesTest, FilesOfAModelAreInputs) {
  EXPECT_EQ(FilesOfModel(dir_ + "/model", Env::Real()).size(), 2u);
  EXPECT_FALSE(CheckIsNoInput("--output", dir_ + "/model/MANIFEST",
                              FilesOfModel(dir_ + "/model", Env::Real()))
                   .ok());
  EXPECT_TRUE(FilesOfModel(dir_ + "/absent", Env::Real()).empty());
}

}  // namespace
}  // namespace sluice::cli
