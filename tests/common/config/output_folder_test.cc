#include "common/config/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/config/job_config.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kResult[] =
    "{\n  \"job\": \"a-1\",\n  \"mode\": \"sync\",\n  \"k_steps\": 0,\n  \"status\": \"done\",\n"
    "  \"global_step\": 3,\n  \"model_dir\": \"/m\",\n  \"model_digest\": \"00\"\n}\n";
constexpr char kVersion1[] = "version: 1\nmodel_digest: \"00\"\n";
constexpr char kVersion2[] = "version: 2\nmodel_digest: \"00\"\n";

class OutputFolderTest : public testing::Test {
 protected:
  OutputFolderTest() {
    std::string pattern = testing::TempDir() + "/output_folder_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~OutputFolderTest() override { fs::remove_all(dir_); }
  void Write(const std::string& name, const std::string& text) {
    fs::create_directories(fs::path(dir_ + "/" + name).parent_path());
    std::ofstream(dir_ + "/" + name) << text;
  }
  absl::Status Check(bool overwrite = false) {
    return CheckOutputFolder(Env::Real(), dir_, overwrite);
  }
  void ExpectRefused(const std::string& file) {
    const absl::Status refused = Check();
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(refused.message()), HasSubstr(dir_ + "/" + file));
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--overwrite"));
    EXPECT_TRUE(Check(true).ok());
  }

  std::string dir_;
};

TEST_F(OutputFolderTest, TrailingSlashesChangeNothing) {
  EXPECT_EQ(OutputFilesOf("/a//")[0].path, OutputFilesOf("/a")[0].path);
  EXPECT_THAT(OutputFilesOf(""), IsEmpty());
}

TEST_F(OutputFolderTest, OwnFilesPassAndForeignOnesAreRefused) {
  EXPECT_TRUE(Check().ok());
  for (const OutputFile& file : OutputFilesOf(dir_)) {
    const std::string name = file.path.substr(dir_.size() + 1);
    Write(name, "mine");
    ExpectRefused(name);
    Write(name, file.kind == FileKind::kJobConfig ? kOwnConfigLine
                : file.kind == FileKind::kResult  ? kResult
                                                  : kVersion2);
    EXPECT_TRUE(Check().ok()) << name;
  }
}

TEST_F(OutputFolderTest, TheFolderOfAModelIsRefusedEvenWithOverwrite) {
  Write("MANIFEST", kVersion2);
  EXPECT_EQ(Check(false).code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(Check(true).code(), absl::StatusCode::kAlreadyExists);
  Write("MANIFEST", "of another program");
  EXPECT_TRUE(Check().ok());
}

TEST_F(OutputFolderTest, ConfigurationsOfEarlierVersionsAreKnownByFormFolderAndResult) {
  JobConfig config;
  config.set_name("a");
  config.set_output_dir(dir_);
  const std::string text = ToTextproto(config);
  Write("job.textproto", text);
  ExpectRefused("job.textproto");  // there is no result
  Write("result.json", kResult);
  EXPECT_TRUE(Check().ok());
  config.set_output_dir(fs::path(dir_).parent_path());
  for (const std::string& foreign : {"# mine\n" + text, text + "\n", ToTextproto(config)}) {
    Write("job.textproto", foreign);
    ExpectRefused("job.textproto");
  }
}

TEST_F(OutputFolderTest, ModelsOfVersion1HaveAConfigurationWithoutTheFirstLine) {
  Write("model/job.textproto", "name: \"a\"\n");
  ExpectRefused("model/job.textproto");
  Write("model/MANIFEST", kVersion2);
  ExpectRefused("model/job.textproto");
  Write("model/MANIFEST", kVersion1);
  EXPECT_TRUE(Check().ok());
}

}  // namespace
}  // namespace sluice
