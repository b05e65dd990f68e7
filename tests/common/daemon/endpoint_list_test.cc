#include "common/daemon/endpoint_list.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "common/base/file_lock.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

std::string TextOf(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class EndpointListTest : public ::testing::Test {
 protected:
  EndpointListTest() {
    id_.role = ROLE_PSERVER;
    id_.rank = 2;
    id_.log_dir = root_ + "/deep";
  }
  ~EndpointListTest() override { std::filesystem::remove_all(root_); }
  const std::string root_ =
      ::testing::TempDir() + "/endpoint_list_test_" + std::to_string(getpid());
  Identity id_;
};

TEST_F(EndpointListTest, EndpointsLogHasOneHeaderAndOneLinePerProcess) {
  ASSERT_TRUE(AppendEndpoint(Env::Real(), id_, "127.0.0.1:7001", "127.0.0.1:9001").ok());
  id_.role = ROLE_WORKER;
  ASSERT_TRUE(AppendEndpoint(Env::Real(), id_, "", "127.0.0.1:9002").ok());
  const std::string pid = std::to_string(getpid());
  EXPECT_EQ(TextOf(id_.log_dir + "/endpoints.log"),
            "# role rank address pid admin_address\npserver 2 127.0.0.1:7001 " + pid +
                " 127.0.0.1:9001\nworker 2 - " + pid + " 127.0.0.1:9002\n");
}

TEST_F(EndpointListTest, FolderOfARunningClusterIsRefusedToAnother) {
  Identity scheduler = id_;
  scheduler.role = ROLE_SCHEDULER;
  ASSERT_TRUE(AppendEndpoint(Env::Real(), scheduler, "10.0.0.1:7100", "").ok());
  const std::string endpoints = TextOf(id_.log_dir + "/endpoints.log");
  {
    const auto lock = FileLock::Take(id_.log_dir + "/schedulerlog.0");
    ASSERT_TRUE(lock.ok()) << lock.status();
    id_.scheduler = "127.0.0.1:7200";
    EXPECT_TRUE(absl::IsAlreadyExists(AppendEndpoint(Env::Real(), id_, "", "")));
    EXPECT_EQ(TextOf(id_.log_dir + "/endpoints.log"), endpoints);
    id_.scheduler = "host-a:7100";  // another name of the same scheduler
    EXPECT_TRUE(AppendEndpoint(Env::Real(), id_, "", "").ok());
    id_.scheduler = "host-b:7200,host-a:7100";
    EXPECT_TRUE(AppendEndpoint(Env::Real(), id_, "", "").ok());
    id_.scheduler = "host-b:7200,host-a:7300";
    EXPECT_TRUE(absl::IsAlreadyExists(AppendEndpoint(Env::Real(), id_, "", "")));
  }
  id_.scheduler = "127.0.0.1:7200";
  EXPECT_TRUE(AppendEndpoint(Env::Real(), id_, "", "").ok())
      << "no scheduler uses the folder any more";
}

TEST_F(EndpointListTest, ForeignEndpointsFileIsLeftAsItIs) {
  std::filesystem::create_directories(id_.log_dir);
  std::ofstream(id_.log_dir + "/endpoints.log") << "mine\n";
  EXPECT_TRUE(absl::IsAlreadyExists(AppendEndpoint(Env::Real(), id_, "127.0.0.1:7001", "")));
  EXPECT_EQ(TextOf(id_.log_dir + "/endpoints.log"), "mine\n");
}

TEST_F(EndpointListTest, AFolderThatCannotBeCreatedIsRefusedWithTheFix) {
  std::filesystem::create_directories(root_);
  std::ofstream(root_ + "/file") << "in the way";
  id_.log_dir = root_ + "/file/x";
  EXPECT_THAT(std::string(AppendEndpoint(Env::Real(), id_, "a:1", "").message()),
              HasSubstr("--log_dir"));
}

}  // namespace
}  // namespace sluice
