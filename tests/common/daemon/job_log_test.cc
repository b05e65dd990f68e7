#include "common/daemon/job_log.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"

namespace sluice {
namespace {

const absl::Time kNow = absl::FromUnixMillis(1700000000500);

std::vector<std::string> Lines(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class JobLogTest : public testing::Test {
 protected:
  JobLogTest() : folder_(testing::TempDir() + "/job_log_test") {
    std::filesystem::remove_all(folder_);
  }
  ~JobLogTest() override { std::filesystem::remove_all(folder_); }
  const std::string folder_;
};

TEST_F(JobLogTest, LinesCarryTheTimeAndGoToTheFileOfRoleAndRank) {
  ASSERT_TRUE(AppendToJobLog(folder_, "ads-1", ROLE_WORKER, 3, kNow, "begins").ok());
  ASSERT_TRUE(AppendToJobLog(folder_, "ads-1", ROLE_WORKER, 3, kNow, "ends").ok());
  ASSERT_TRUE(AppendToJobLog(folder_, "ads-2", ROLE_PSERVER, 0, kNow, "opens").ok());
  const std::vector<std::string> lines = Lines(folder_ + "/ads-1/workerlog.3");
  ASSERT_EQ(lines.size(), 2u);
  const std::regex form(R"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} (begins|ends))");
  for (const std::string& line : lines) EXPECT_TRUE(std::regex_match(line, form)) << line;
  EXPECT_EQ(Lines(folder_ + "/ads-2/serverlog.0").size(), 1u);
}

TEST_F(JobLogTest, TextOfAPeerNeitherForgesALineNorCommandsATerminal) {
  const std::string text = "failed: \x1b[2J\n2026-01-01 00:00:00.000 all is well";
  ASSERT_TRUE(AppendToJobLog(folder_, "ads-1", ROLE_WORKER, 3, kNow, text).ok());
  const std::vector<std::string> lines = Lines(folder_ + "/ads-1/workerlog.3");
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].find('\x1b'), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1], "    2026-01-01 00:00:00.000 all is well");
}

TEST_F(JobLogTest, LinesOfManyThreadsStayWhole) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([this, t] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_TRUE(
            AppendToJobLog(folder_, "ads-1", ROLE_WORKER, 0, kNow, std::string(100, 'a' + t)).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::vector<std::string> lines = Lines(folder_ + "/ads-1/workerlog.0");
  ASSERT_EQ(lines.size(), 200u);
  for (const std::string& line : lines) {
    ASSERT_EQ(line.size(), 24u + 100u);
    EXPECT_EQ(line.find_first_not_of(line.back(), 24), std::string::npos) << line;
  }
}

TEST_F(JobLogTest, AnIdLeadsNowhereElse) {
  const std::string log_dir = folder_ + "/log";
  std::filesystem::create_directories(log_dir);
  std::filesystem::create_directories(folder_ + "/other");
  for (const std::string& id :
       {std::string("../other"), std::string(".."), std::string("."), std::string(),
        std::string("a/b"), folder_ + "/other", std::string("a\0b", 3)}) {
    EXPECT_EQ(AppendToJobLog(log_dir, id, ROLE_WORKER, 0, kNow, "x").code(),
              absl::StatusCode::kInvalidArgument)
        << id;
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_ + "/other"));
  EXPECT_TRUE(std::filesystem::is_empty(log_dir));
}

TEST_F(JobLogTest, FolderThatCannotBeCreatedIsNamed) {
  std::filesystem::create_directories(folder_);
  std::ofstream(folder_ + "/ads-1") << "a file";
  const absl::Status status = AppendToJobLog(folder_, "ads-1", ROLE_WORKER, 0, kNow, "x");
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_NE(std::string(status.message()).find("ads-1/workerlog.0"), std::string::npos);
}

}  // namespace
}  // namespace sluice
