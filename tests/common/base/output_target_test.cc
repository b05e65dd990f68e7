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
