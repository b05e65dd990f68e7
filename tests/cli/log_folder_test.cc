#include "cli/log_folder.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

class LogFolderTest : public ::testing::Test {
 protected:
  ~LogFolderTest() override { std::filesystem::remove_all(root_); }
  const std::string root_ = ::testing::TempDir() + "log_folder_test." + std::to_string(getpid());
  const std::string log_ = root_ + "/log";
};

TEST_F(LogFolderTest, AFolderInUseIsRefusedAndLeftAsItIs) {
  auto first = LogFolder::Take(log_);
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->path(), log_);
  std::ofstream(first->cluster_file()) << "kept";
  EXPECT_TRUE(absl::IsFailedPrecondition(LogFolder::Take(log_).status()));
  std::string text;
  std::ifstream(first->cluster_file()) >> text;
  EXPECT_EQ(text, "kept");
}

TEST_F(LogFolderTest, LaunchesSideBySideGetFoldersOfTheirOwn) {
  auto first = LogFolder::TakeOrNext(log_), second = LogFolder::TakeOrNext(log_);
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->path(), log_);
  EXPECT_EQ(second->path(), log_ + "-2");
  EXPECT_EQ(LogFolder::TakeOrNext(log_)->path(), log_ + "-3");
  { const LogFolder ended = *std::move(first); }
  EXPECT_EQ(LogFolder::TakeOrNext(log_)->path(), log_) << "it is free again";
}

TEST_F(LogFolderTest, AFolderOfProcessesThatHaveEndedIsFree) {
  ASSERT_TRUE(LogFolder::Take(log_).ok());
  std::ofstream(log_ + "/endpoints.log") << "scheduler 0 127.0.0.1:1 " << getpid() << " -\n";
  EXPECT_TRUE(LogFolder::Take(log_).ok()) << "this process is no scheduler";
}

TEST_F(LogFolderTest, AFolderThatCannotBeMadeIsNoReasonForAnother) {
  std::filesystem::create_directories(root_);
  std::ofstream(log_) << "in the way";
  EXPECT_TRUE(absl::IsInvalidArgument(LogFolder::TakeOrNext(log_).status()));
  EXPECT_FALSE(std::filesystem::exists(log_ + "-2"));
}

}  // namespace
}  // namespace sluice::cli
