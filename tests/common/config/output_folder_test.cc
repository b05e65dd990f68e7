#include "common/config/output_folder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>

#include "common/base/rooted_env.h"
#include "common/config/job_config.h"
#include "tests/common/base/hooked_env.h"

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

// Replaces `path` by a pipe after some reads of it.
class SwappingEnv : public HookedEnv {
 public:
  SwappingEnv(std::string path, int after_reads) : path_(std::move(path)), left_(after_reads) {}
  absl::StatusOr<std::string> ReadFile(const std::string& path) override {
    auto text = HookedEnv::ReadFile(path);
    NoteRead(path);
    return text;
  }
  absl::StatusOr<std::string> ReadRange(const std::string& path, uint64_t offset,
                                        uint64_t n) override {
    auto text = HookedEnv::ReadRange(path, offset, n);
    NoteRead(path);
    return text;
  }
  bool swapped() const { return left_ <= 0; }

 private:
  void NoteRead(const std::string& path) {
    if (path != path_ || --left_ != 0) return;
    EXPECT_EQ(::unlink(path.c_str()), 0);
    EXPECT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }

  const std::string path_;
  int left_;
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
                : file.kind == FileKind::kCurves  ? kOwnCurvesStart
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

TEST_F(OutputFolderTest, TheConfigurationIsReadOnceThroughTheEnv) {
  JobConfig config;
  config.set_output_dir(dir_);
  Write("job.textproto", ToTextproto(config));
  Write("result.json", kResult);
  // Somebody puts a pipe in its place as soon as it has been recognised as a foreign file.
  SwappingEnv env(dir_ + "/job.textproto", /*after_reads=*/2);
  auto checked =
      std::async(std::launch::async, [&] { return CheckOutputFolder(&env, dir_, false); });
  const bool ended = checked.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(ended) << "it waits for the other end of the pipe";
  // Lets go whoever waits, so that the test ends.
  if (!ended) std::ofstream(dir_ + "/job.textproto") << "name: \"a\"";
  EXPECT_TRUE(checked.get().ok());
  EXPECT_TRUE(env.swapped());
}

TEST_F(OutputFolderTest, AConfigurationOfAnEarlierVersionIsFoundOnlyBelowTheRoots) {
  const std::string root = fs::canonical(dir_).string() + "/root", dir = root + "/job";
  fs::create_directories(dir);
  auto env = RootedEnv::Create(Env::Real(), {{}, {root}});
  ASSERT_TRUE(env.ok()) << env.status();
  Write("root/job/result.json", kResult);
  JobConfig config;
  config.set_output_dir(dir);
  Write("root/job/job.textproto", ToTextproto(config));
  EXPECT_TRUE(CheckOutputFolder(env->get(), dir, false).ok());
  // The same folder through a name outside of the roots.
  fs::create_symlink(dir, dir_ + "/link");
  config.set_output_dir(dir_ + "/link");
  Write("root/job/job.textproto", ToTextproto(config));
  EXPECT_TRUE(CheckOutputFolder(Env::Real(), dir, false).ok());
  EXPECT_EQ(CheckOutputFolder(env->get(), dir, false).code(), absl::StatusCode::kAlreadyExists);
}

TEST_F(OutputFolderTest, AVeryLongConfigurationIsOfNoEarlierVersion) {
  JobConfig config;
  config.set_output_dir(dir_);
  config.set_name(std::string(17 << 20, 'x'));
  Write("job.textproto", ToTextproto(config));
  Write("result.json", kResult);
  ExpectRefused("job.textproto");
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
