#include "cli/fresh_state.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

class FreshStateTest : public testing::Test {
 protected:
  FreshStateTest() : dir_(absl::StrCat(testing::TempDir(), "/fresh_state_test.", getpid())) {
    fs::remove_all(dir_);
  }
  ~FreshStateTest() override { fs::remove_all(dir_); }
  void Write(const std::string& name) {
    fs::create_directories(dir_);
    std::ofstream(dir_ + "/" + name) << "x";
  }
  const std::string dir_;
};

TEST_F(FreshStateTest, RemovesTheStateOfAnEarlierScheduler) {
  EXPECT_TRUE(ClearState(dir_).ok());
  for (const char* name : {"CURRENT", "IDENTITY", "LOCK", "LOG", "LOG.old.17", "MANIFEST-000005",
                           "OPTIONS-000007", "000004.log", "000008.sst"}) {
    Write(name);
  }
  EXPECT_TRUE(ClearState(dir_).ok());
  EXPECT_FALSE(fs::exists(dir_));
}

TEST_F(FreshStateTest, LeavesEverythingElseAlone) {
  Write("CURRENT");
  Write("notes.txt");
  EXPECT_TRUE(absl::IsInvalidArgument(ClearState(dir_)));
  EXPECT_TRUE(fs::exists(dir_ + "/CURRENT"));
  fs::remove(dir_ + "/notes.txt");
  fs::create_directories(dir_ + "/000004.log.d");
  fs::create_directories(dir_ + "/folder.sst");
  EXPECT_TRUE(absl::IsInvalidArgument(ClearState(dir_)));
  EXPECT_TRUE(fs::exists(dir_ + "/folder.sst"));
}

TEST_F(FreshStateTest, FollowsNoLink) {
  Write("CURRENT");
  const std::string link = dir_ + ".link";
  fs::remove(link);
  fs::create_directory_symlink(dir_, link);
  EXPECT_TRUE(absl::IsInvalidArgument(ClearState(link)));
  EXPECT_TRUE(fs::exists(dir_ + "/CURRENT"));
  fs::remove(link);
}

}  // namespace
}  // namespace sluice::cli
