#include "cli/cluster/cluster_folders.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "cli/cluster/local_cluster.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
#include "common/config/job_config.h"
#include "gmock/gmock.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

class LogFolderTest : public ::testing::Test {
 protected:
  ~LogFolderTest() override { std::filesystem::remove_all(root_); }
  static std::string Read(const std::string& path) {
    return Env::Real()->ReadFile(path).value_or("");
  }
  const std::string root_ = ::testing::TempDir() + "log_folder_test." + std::to_string(getpid());
  const std::string log_ = root_ + "/log";
};

TEST_F(LogFolderTest, FolderInUseIsRefusedAndUnchanged) {
  auto first = LogFolder::Take(log_, Env::Real());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->path(), log_);
  std::ofstream(first->cluster_file()) << kOwnClusterLine << "# kept";
  EXPECT_TRUE(absl::IsFailedPrecondition(LogFolder::Take(log_, Env::Real()).status()));
  EXPECT_EQ(Read(first->cluster_file()), std::string(kOwnClusterLine) + "# kept");
}

TEST_F(LogFolderTest, ConcurrentLaunchesGetSeparateFolders) {
  auto first = LogFolder::TakeOrNext(log_, Env::Real()),
       second = LogFolder::TakeOrNext(log_, Env::Real());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(first->path(), log_);
  EXPECT_EQ(second->path(), log_ + "-2");
  EXPECT_EQ(LogFolder::TakeOrNext(log_, Env::Real())->path(), log_ + "-3");
  { const LogFolder ended = *std::move(first); }
  EXPECT_EQ(LogFolder::TakeOrNext(log_, Env::Real())->path(), log_) << "the folder is free again";
}

TEST_F(LogFolderTest, FolderOfEndedProcessesIsFree) {
  ASSERT_TRUE(LogFolder::Take(log_, Env::Real()).ok());
  std::ofstream(log_ + "/endpoints.log")
      << kOwnEndpointsLine << "scheduler 0 127.0.0.1:1 " << getpid() << " -\n";
  EXPECT_TRUE(LogFolder::Take(log_, Env::Real()).ok()) << "this process is not a scheduler";
}

TEST_F(LogFolderTest, FolderWithForeignFilesIsRefused) {
  for (const char* name : {"cluster.textproto", "endpoints.log"}) {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(log_);
    const std::string file = log_ + "/" + name;
    std::ofstream(file) << "# mine\n";
    for (const auto& refused :
         {LogFolder::Take(log_, Env::Real()), LogFolder::TakeOrNext(log_, Env::Real())}) {
      EXPECT_TRUE(absl::IsInvalidArgument(refused.status())) << refused.status();
      EXPECT_THAT(std::string(refused.status().message()), ::testing::HasSubstr(file));
    }
    EXPECT_EQ(Read(file), "# mine\n");
    EXPECT_THAT(*Env::Real()->List(log_), ::testing::ElementsAre(name)) << "no file was added";
  }
}

TEST_F(LogFolderTest, ClusterFileOfAnEarlierVersionIsRecognized) {
  std::filesystem::create_directories(log_);
  const std::string file = log_ + "/cluster.textproto";
  const std::string text = ToTextproto(LoopbackCluster("127.0.0.1:0", 2, 1));
  std::ofstream(file) << text;
  EXPECT_TRUE(LogFolder::Take(log_, Env::Real()).ok());
  ClusterConfig fixed_port = LoopbackCluster("127.0.0.1:0", 2, 1);
  fixed_port.set_pservers(1, "127.0.0.1:7001");
  for (const std::string& foreign : {"# mine\n" + text, ToTextproto(fixed_port)}) {
    std::ofstream(file) << foreign;
    EXPECT_FALSE(LogFolder::Take(log_, Env::Real()).ok()) << foreign;
  }
}

TEST_F(LogFolderTest, NoOtherFolderIsTakenWhenOneCannotBeCreated) {
  std::filesystem::create_directories(root_);
  std::ofstream(log_) << "in the way";
  EXPECT_TRUE(absl::IsInvalidArgument(LogFolder::TakeOrNext(log_, Env::Real()).status()));
  EXPECT_FALSE(std::filesystem::exists(log_ + "-2"));
}

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
