#include "common/base/output_target.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <vector>

#include "tests/common/base/planted.h"

namespace sluice {
namespace {

namespace fs = std::filesystem;

class OutputTargetTest : public ::testing::Test {
 protected:
  OutputTargetTest() {
    std::string pattern = ::testing::TempDir() + "/output_target_test.XXXXXX";
    dir_ = ::mkdtemp(pattern.data());
  }
  ~OutputTargetTest() override { fs::remove_all(dir_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(dir_ + "/" + name) << text;
    return dir_ + "/" + name;
  }
  std::string Read(const std::string& name) {
    std::ifstream in(dir_ + "/" + name);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  std::string dir_;
};

TEST_F(OutputTargetTest, LinksAreFollowedAndPipesAreWrittenInPlace) {
  fs::create_symlink("b", dir_ + "/a");
  fs::create_symlink("there", dir_ + "/b");
  EXPECT_EQ(ResolveOutput(dir_ + "/a").path, dir_ + "/there");  // the file does not exist yet
  EXPECT_FALSE(ResolveOutput(dir_ + "/a").in_place);
  Write("there", "x");
  EXPECT_EQ(ResolveOutput(dir_ + "/a").path, dir_ + "/there");
  ASSERT_EQ(::mkfifo((dir_ + "/pipe").c_str(), 0600), 0);
  EXPECT_TRUE(ResolveOutput(dir_ + "/pipe").in_place);
  EXPECT_TRUE(ResolveOutput("/dev/null").in_place);
}

TEST_F(OutputTargetTest, AnOutputLiesOutsideOfWhatIsRead) {
  fs::create_directories(dir_ + "/step-6/inner");
  fs::create_directory_symlink("step-6", dir_ + "/link");
  fs::create_symlink("step-6/new", dir_ + "/dangling");
  const std::string read = dir_ + "/step-6";
  for (const char* output : {"/step-6", "/step-6/", "/./step-6", "/step-6/new", "/step-6/inner/a/b",
                             "/link", "/link/new", "/other/../step-6/new", "/dangling"}) {
    for (const std::string& input : {read, read + "/", dir_ + "/link"}) {
      const absl::Status refused = CheckIsOutside(dir_ + output, input);
      EXPECT_TRUE(absl::IsInvalidArgument(refused)) << output << " " << input;
      EXPECT_NE(refused.message().find(dir_ + output), absl::string_view::npos) << refused;
      EXPECT_NE(refused.message().find(input), absl::string_view::npos) << refused;
    }
  }
  for (const char* output : {"/step-60", "/step-60/new", "/new", "", "/step-6/../new"})
    EXPECT_TRUE(CheckIsOutside(dir_ + output, read).ok()) << output;
  const std::string url = "s3://data/run/step-6";
  for (const char* output : {"", "/", "/new", "/a/b"})
    EXPECT_FALSE(CheckIsOutside(url + output, url + "/").ok()) << output;
  for (const std::string& output : {url + "0", std::string("s3://data/run"), dir_ + "/new"})
    EXPECT_TRUE(CheckIsOutside(output, url).ok()) << output;
  EXPECT_TRUE(CheckIsOutside(url, read).ok());
}

TEST_F(OutputTargetTest, WhatHasTheNameOfAnUnfinishedFileLosesItUnchanged) {
  Planted planted(dir_ + "/victim");
  const std::string name = UnfinishedName(dir_ + "/out");
  const std::vector<std::function<void()>> plants = {
      [] {}, [&] { planted.HardLink(name); }, [&] { planted.Link(name); },
      [&] { planted.Pipe(name); }, [&] { std::ofstream(name) << "left by a killed process"; }};
  for (const auto& plant : plants) {
    plant();
    const auto fd = CreateUnfinished(name, dir_ + "/out");
    ASSERT_TRUE(fd.ok()) << fd.status();
    EXPECT_EQ(::write(*fd, "new", 3), 3);
    ::close(*fd);
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(name)));
    EXPECT_EQ(fs::file_size(name), 3u);
    EXPECT_TRUE(planted.VictimIsUnchanged());
    fs::remove(name);
  }
  fs::create_directory(name);
  EXPECT_EQ(CreateUnfinished(name, dir_ + "/out").status().code(),
            absl::StatusCode::kAlreadyExists);
  const absl::Status none =
      CreateUnfinished(dir_ + "/none/x.7.unfinished", dir_ + "/none/x").status();
  EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(none.message().find("none/x;"), absl::string_view::npos) << none;
  EXPECT_EQ(none.message().find("unfinished"), absl::string_view::npos) << none;
}

TEST_F(OutputTargetTest, FileCreatedMeanwhileIsNotReplaced) {
  const std::string done = Write("done", "new"), there = dir_ + "/there";
  EXPECT_TRUE(PutInPlace(done, there, false).ok());
  EXPECT_EQ(Read("there"), "new");
  Write("done", "newer");
  EXPECT_TRUE(absl::IsAlreadyExists(PutInPlace(done, there, false)));
  EXPECT_EQ(Read("there"), "new");
  EXPECT_TRUE(fs::exists(done));
  EXPECT_TRUE(PutInPlace(done, there, true).ok());
  EXPECT_EQ(Read("there"), "newer");
  Write("done", "newest");
  Write("there", "");  // an empty file may be replaced
  EXPECT_TRUE(PutInPlace(done, there, false).ok());
  EXPECT_EQ(Read("there"), "newest");
}

}  // namespace
}  // namespace sluice
