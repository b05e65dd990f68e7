#include "cli/jobs/dashboard_address.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;

TEST(DashboardAddressTest, AnAddressThatStandsForAllOfAHostBecomesTheSchedulersHost) {
  EXPECT_EQ(ReachableAdmin("0.0.0.0:8080", "10.0.0.1:7100"), "10.0.0.1:8080");
  EXPECT_EQ(ReachableAdmin("[::]:8080", "[fd00::1]:7100"), "[fd00::1]:8080");
  EXPECT_EQ(ReachableAdmin("127.0.0.1:8080", "10.0.0.1:7100"), "127.0.0.1:8080");
  EXPECT_EQ(ReachableAdmin("0.0.0.0:8080", ""), "0.0.0.0:8080");
  EXPECT_EQ(ReachableAdmin("", "10.0.0.1:7100"), "");
}

TEST(DashboardAddressTest, WithTlsTheLineNamesTheCommand) {
  EXPECT_THAT(DashboardLine("127.0.0.1:8080", false, ""), HasSubstr("http://127.0.0.1:8080/"));
  EXPECT_THAT(DashboardLine("127.0.0.1:8080", true, " --log_dir=x"),
              HasSubstr("sluice dashboard --log_dir=x"));
  EXPECT_EQ(DashboardLine("", false, ""), "");
  EXPECT_EQ(DashboardLine("-", true, ""), "");
}

TEST(DashboardAddressTest, TheNewestSchedulerOfTheFolderCounts) {
  const std::string folder = absl::StrCat(testing::TempDir(), "dashboard_address.", getpid());
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/endpoints.log") << "scheduler 0 127.0.0.1:1 11 127.0.0.1:2\n"
                                              "worker 0 - 12 127.0.0.1:3\n"
                                              "scheduler 0 127.0.0.1:4 13 127.0.0.1:5\n";
  EXPECT_THAT(DashboardLineOf(folder, false), HasSubstr("http://127.0.0.1:5/"));
  EXPECT_EQ(DashboardLineOf(folder + "/nowhere", false), "");
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace sluice::cli
