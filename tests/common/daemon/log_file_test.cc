#include "common/daemon/log_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

class LogFileTest : public ::testing::Test {
 protected:
  LogFileTest() { std::filesystem::create_directories(folder_); }
  ~LogFileTest() override { std::filesystem::remove_all(folder_); }
  std::unique_ptr<LogFile> OpenSmall(uint64_t max_bytes, uint32_t keep) {
    auto file = LogFile::Open(path_, {max_bytes, keep});
    EXPECT_TRUE(file.ok()) << file.status();
    return *std::move(file);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_))
      names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
  }
  // The lines of all files, oldest first.
  std::vector<std::string> Lines() const {
    std::vector<std::string> lines;
    for (int number = 2000; number >= 0; --number) {
      const std::string name = number == 0 ? path_ : absl::StrCat(path_, ".", number);
      if (!std::filesystem::exists(name)) continue;
      for (absl::string_view line : absl::StrSplit(ReadAll(name), '\n', absl::SkipEmpty()))
        lines.emplace_back(line);
    }
    return lines;
  }
  const std::string folder_ = ::testing::TempDir() + "/log_file_test_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/workerlog.0";
};

TEST_F(LogFileTest, TheNamedFileIsTheNewestAndOnlySomeOlderOnesAreKept) {
  const auto log = OpenSmall(10, 3);
  for (const char* line : {"line 1\n", "line 2\n", "line 3\n", "line 4\n"}) log->Write(line);
  EXPECT_THAT(Names(), ElementsAre("workerlog.0", "workerlog.0.1", "workerlog.0.2"));
  EXPECT_EQ(ReadAll(path_), "line 4\n");
  EXPECT_EQ(ReadAll(path_ + ".1"), "line 3\n");
  EXPECT_EQ(ReadAll(path_ + ".2"), "line 2\n");
}

TEST_F(LogFileTest, OneKeptFileIsReplacedAndSurplusOnesOfAnEarlierRunGo) {
  std::ofstream(path_ + ".1") << "old\n";
  std::ofstream(path_ + ".2") << "older\n";
  const auto log = OpenSmall(10, 1);
  log->Write("line 1\n");
  log->Write("line 2\n");
  EXPECT_THAT(Names(), ElementsAre("workerlog.0"));
  EXPECT_EQ(ReadAll(path_), "line 2\n");
}

TEST_F(LogFileTest, NoLineIsLostWhileThreadsWriteAndFilesAreRotated) {
  constexpr int kThreads = 4, kLines = 3000, kRaw = 1000;
  // Standard error is redirected into the log, as a launcher does.
  const int before = dup(STDERR_FILENO);
  const int redirected = open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  dup2(redirected, STDERR_FILENO);
  close(redirected);
  const auto log = OpenSmall(2000, 1000);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&log, t] {
      for (int i = 0; i < kLines; ++i) log->Write(absl::StrCat("thread ", t, " line ", i, "\n"));
    });
  }
  threads.emplace_back([] {
    for (int i = 0; i < kRaw; ++i) {
      const std::string line = absl::StrCat("raw line ", i, "\n");
      ASSERT_EQ(write(STDERR_FILENO, line.data(), line.size()), static_cast<ssize_t>(line.size()));
    }
  });
  for (std::thread& thread : threads) thread.join();
  dup2(before, STDERR_FILENO);
  close(before);
  std::map<std::string, int> seen;
  for (const std::string& line : Lines()) ++seen[line];
  EXPECT_EQ(seen.size(), kThreads * kLines + kRaw);
  for (const auto& [line, times] : seen) EXPECT_EQ(times, 1) << line;
  EXPECT_GT(Names().size(), 50u) << "many rotations";
  for (int t = 0; t < kThreads; ++t) {
    EXPECT_EQ(seen.count(absl::StrCat("thread ", t, " line ", kLines - 1)), 1u);
  }
}

TEST_F(LogFileTest, NoLineIsLostWhileOthersMoveTheFile) {
  constexpr int kLines = 10'000;
  const auto log = OpenSmall(100 << 20, 2);
  std::thread writer([&log] {
    for (int i = 0; i < kLines; ++i) log->Write(absl::StrCat("line ", i, "\n"));
  });
  for (int number = 1000; number > 0; --number) {
    std::filesystem::rename(path_, absl::StrCat(path_, ".", number));
    log->Reopen();
  }
  writer.join();
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), kLines);
  for (int i = 0; i < kLines; ++i) ASSERT_EQ(lines[i], absl::StrCat("line ", i));
}

TEST_F(LogFileTest, LinesOfOneThreadStayInOrderAcrossFiles) {
  const auto log = OpenSmall(100, 1000);
  std::vector<std::string> expected;
  for (int i = 0; i < 500; ++i) {
    expected.push_back(absl::StrCat("line ", i));
    log->Write(expected.back() + "\n");
  }
  EXPECT_EQ(Lines(), expected);
}

TEST_F(LogFileTest, TheLockMovesToTheNewFile) {
  const auto log = OpenSmall(10, 2);
  log->Write("line 1\n");
  log->Write("line 2\n");
  uint32_t holder = 0;
  EXPECT_TRUE(absl::IsAlreadyExists(FileLock::Take(path_, &holder).status()));
  EXPECT_TRUE(FileLock::Take(path_ + ".1").ok()) << "the old file is free";
}

TEST_F(LogFileTest, AFileThatCannotBeRotatedGrowsOnAndSaysWhy) {
  const auto log = OpenSmall(100, 10);
  // Nobody can open a folder as the next file.
  std::filesystem::create_directory(path_ + ".next");
  for (int i = 0; i < 100; ++i) log->Write(absl::StrCat("line ", i, "\n"));
  std::vector<std::string> lines = Lines();
  EXPECT_EQ(lines.size(), 101u);
  EXPECT_THAT(ReadAll(path_), HasSubstr("cannot be rotated"));
  std::filesystem::remove(path_ + ".next");
  log->Write("line 100\n");
  log->Write(std::string(100, 'x') + "\n");
  EXPECT_TRUE(std::filesystem::exists(path_ + ".1")) << "rotated once it can be";
  EXPECT_EQ(Lines().size(), 103u);
}

TEST_F(LogFileTest, AFullDiskEndsNothingAndTheGapIsNamedAfterwards) {
  // A limit on the size of files stands for the full disk: the write fails in the middle of a line.
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGXFSZ, SIG_IGN);  // as StopSignal does
    const auto log = OpenSmall(1 << 20, 2);
    rlimit limit = {};
    getrlimit(RLIMIT_FSIZE, &limit);
    const rlimit full = {30, limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &full);
    for (int i = 0; i < 5; ++i) log->Write(absl::StrCat("a line ", i, "\n"));
    setrlimit(RLIMIT_FSIZE, &limit);
    log->Write("room again\n");
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const std::vector<std::string> lines = Lines();
  ASSERT_EQ(lines.size(), 6u) << ReadAll(path_);
  EXPECT_EQ(lines[2], "a line 2");
  EXPECT_EQ(lines[3], "a l") << "the part of a line has a line of its own";
  EXPECT_THAT(lines[4], HasSubstr("2 lines of the log are missing here: File too large"));
  EXPECT_EQ(lines[5], "room again");
}

TEST_F(LogFileTest, AFileThatSomebodyMovedIsFollowedByANewOneOnReopen) {
  const auto log = OpenSmall(1000, 2);
  log->Write("line 1\n");
  std::filesystem::rename(path_, folder_ + "/moved");
  log->Write("line 2\n");
  log->Reopen();
  log->Write("line 3\n");
  EXPECT_EQ(ReadAll(folder_ + "/moved"), "line 1\nline 2\n");
  EXPECT_EQ(ReadAll(path_), "line 3\n");
  log->Reopen();
  log->Write("line 4\n");
  EXPECT_EQ(ReadAll(path_), "line 3\nline 4\n") << "the same file stays";
}

TEST_F(LogFileTest, AFileThatSomebodyRemovedComesBackWithTheNextLine) {
  const auto log = OpenSmall(1000, 2);
  log->Write("line 1\n");
  std::filesystem::remove(path_);
  log->Write("line 2\n");
  EXPECT_EQ(ReadAll(path_), "line 2\n");
}

TEST_F(LogFileTest, ARotationThatDeathCutShortLeavesNoLineTwice) {
  std::ofstream(path_) << "line 1\n";
  std::filesystem::create_hard_link(path_, path_ + ".1");
  std::ofstream(path_ + ".next");
  const auto log = OpenSmall(10, 3);
  log->Write("line 2\n");
  log->Write("line 3\n");
  EXPECT_THAT(Lines(), ElementsAre("line 1", "line 2", "line 3"));
}

TEST(LogLimitsTest, WrongOnesNameTheirFlag) {
  EXPECT_TRUE(CheckLogLimits(64, 5).ok());
  EXPECT_THAT(std::string(CheckLogLimits(0, 5).message()), HasSubstr("--log_max_mb=0"));
  EXPECT_THAT(std::string(CheckLogLimits(64, 0).message()), HasSubstr("--log_keep=0"));
  EXPECT_FALSE(CheckLogLimits(static_cast<uint64_t>(-1), 5).ok());
}

TEST(LogStartTest, ALineIsKnownByItsText) {
  const std::string text = LogStartLine("sluice-worker 0", "1.0");
  EXPECT_TRUE(IsLogStart("I20260101 00:00:00.000000  7 process_log.cc:9] " + text));
  EXPECT_FALSE(IsLogStart("I20260101 00:00:00.000000  7 a.cc:9] job a-1: starts as rank 0"));
}

}  // namespace
}  // namespace sluice
