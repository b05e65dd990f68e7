#include "common/daemon/process_log.h"

#include <glog/logging.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/daemon/identity.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class ProcessLogTest : public ::testing::Test {
 protected:
  ProcessLogTest() {
    id_.role = ROLE_PSERVER;
    id_.rank = 2;
    id_.log_dir = root_ + "/deep";
  }
  ~ProcessLogTest() override { std::filesystem::remove_all(root_); }
  const std::string root_ = ::testing::TempDir() + "/process_log_test_" + std::to_string(getpid());
  Identity id_;
};

TEST_F(ProcessLogTest, LinesAreInTheNamedFileAtOnceAndNowhereElse) {
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  LOG(INFO) << "first line";
  EXPECT_THAT(Read(id_.log_dir + "/serverlog.2"), HasSubstr("first line\n"));
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  LOG(INFO) << "second line";
  const std::string text = Read(id_.log_dir + "/serverlog.2");
  EXPECT_THAT(text, HasSubstr("first line\n")) << "reopening must append";
  EXPECT_EQ(text.find("second line"), text.rfind("second line")) << "written twice";
  int files = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(id_.log_dir))
    ++files;
  EXPECT_EQ(files, 1);
}

TEST_F(ProcessLogTest, ALineToBeSeenIsAlsoOnTheTerminalOnce) {
  ASSERT_TRUE(OpenLog(id_, "test").ok());
  ::testing::internal::CaptureStderr();
  LogAndTell("computes on a GPU");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "computes on a GPU\n");
  EXPECT_THAT(Read(id_.log_dir + "/serverlog.2"), HasSubstr("computes on a GPU\n"));
}

TEST_F(ProcessLogTest, EndpointsHaveOneHeaderAndALineEach) {
  ASSERT_TRUE(AppendEndpoint(id_, "127.0.0.1:7001", "127.0.0.1:9001").ok());
  id_.role = ROLE_WORKER;
  ASSERT_TRUE(AppendEndpoint(id_, "", "127.0.0.1:9002").ok());
  const std::string pid = std::to_string(getpid());
  EXPECT_EQ(Read(id_.log_dir + "/endpoints.log"),
            "# role rank address pid admin_address\npserver 2 127.0.0.1:7001 " + pid +
                " 127.0.0.1:9001\nworker 2 - " + pid + " 127.0.0.1:9002\n");
}

TEST_F(ProcessLogTest, UnusableFolderIsRefusedWithItsNameAndTheFix) {
  std::filesystem::create_directories(root_);
  std::ofstream(root_ + "/file") << "in the way";
  id_.log_dir = root_ + "/file/x";
  EXPECT_THAT(std::string(OpenLog(id_, "test").message()), HasSubstr(id_.log_dir));
  EXPECT_THAT(std::string(AppendEndpoint(id_, "a:1", "").message()), HasSubstr("--log_dir"));
}

}  // namespace
}  // namespace sluice
