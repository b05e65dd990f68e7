#include "cli/cluster/log_files.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/daemon/log_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LogFilesTest : public ::testing::Test {
 protected:
  LogFilesTest() { std::filesystem::create_directories(folder_); }
  ~LogFilesTest() override { std::filesystem::remove_all(folder_); }
  void Append(const std::string& text, const std::string& suffix = "") {
    std::ofstream(path_ + suffix, std::ios::app) << text;
  }
  const std::string folder_ = ::testing::TempDir() + "/log_files_test_" + std::to_string(getpid());
  const std::string path_ = folder_ + "/workerlog.0";
};

TEST_F(LogFilesTest, TailReadsAcrossTheBorder) {
  Append("1\n2\n", ".2");
  Append("3\n4\n", ".1");
  Append("5\n");
  EXPECT_EQ(TailOfLog(path_, 2), "4\n5");
  EXPECT_EQ(TailOfLog(path_, 4), "2\n3\n4\n5");
  EXPECT_EQ(TailOfLog(path_, 100), "1\n2\n3\n4\n5");
  EXPECT_EQ(TailOfLog(folder_ + "/none", 2), "");
}

TEST_F(LogFilesTest, TailOfAFilterLooksIntoOlderFilesForMore) {
  Append("a 1\nb 1\n", ".1");
  Append("b 2\nb 3\na 2\n");
  const auto a = [](const std::string& line) { return line[0] == 'a'; };
  EXPECT_THAT(LogReader(path_).Tail(2, a), ElementsAre("a 1", "a 2"));
}

TEST_F(LogFilesTest, NewGivesCompleteLinesOnce) {
  Append("1\n2");
  LogReader log(path_);
  EXPECT_THAT(log.Tail(10), ElementsAre("1"));
  EXPECT_THAT(log.New(), IsEmpty());
  Append("2\n3\n");
  EXPECT_THAT(log.New(), ElementsAre("22", "3"));
  EXPECT_THAT(log.New(), IsEmpty());
}

TEST_F(LogFilesTest, ALogThatAppearsLaterIsReadFromItsBegin) {
  LogReader log(path_);
  EXPECT_THAT(log.Tail(10), IsEmpty());
  Append("1\n");
  EXPECT_THAT(log.New(), ElementsAre("1"));
}

TEST_F(LogFilesTest, WithoutATailOnlyNewLinesCome) {
  Append("1\n");
  LogReader log(path_);
  EXPECT_THAT(log.Tail(0), IsEmpty());
  Append("2\n");
  EXPECT_THAT(log.New(), ElementsAre("2"));
}

TEST_F(LogFilesTest, ReaderFollowsSeveralRotationsBetweenTwoLooks) {
  Append("1\n");
  LogReader log(path_);
  EXPECT_THAT(log.Tail(10), ElementsAre("1"));
  Append("2\n");
  std::filesystem::rename(path_, path_ + ".2");
  Append("3\n", ".1");
  Append("4\n");
  EXPECT_THAT(log.New(), ElementsAre("2", "3", "4"));
}

TEST_F(LogFilesTest, EmptiedFileIsReadFromItsBegin) {
  Append("1\n2\n");
  LogReader log(path_);
  EXPECT_EQ(log.Tail(10).size(), 2u);
  std::filesystem::resize_file(path_, 0);
  Append("3\n");
  EXPECT_THAT(log.New(), ElementsAre("3"));
}

TEST_F(LogFilesTest, FollowerLosesNoLineAndRepeatsNoneWhileTheLogRotates) {
  constexpr int kLines = 20'000;
  auto file = LogFile::Open(path_, {5000, 1000});
  ASSERT_TRUE(file.ok()) << file.status();
  LogReader log(path_);
  log.Tail(0);
  std::thread writer([&] {
    for (int i = 0; i < kLines; ++i) (*file)->Write(absl::StrCat("line ", i, "\n"));
  });
  int next = 0;
  const auto look = [&] {
    for (const std::string& line : log.New()) ASSERT_EQ(line, absl::StrCat("line ", next++));
  };
  while (next < kLines / 2 && !HasFailure()) look();
  writer.join();
  look();
  EXPECT_EQ(next, kLines);
  EXPECT_TRUE(std::filesystem::exists(path_ + ".9"));
}

TEST(StepLineTest, OnlyLinesOfStepsAreStepLines) {
  const std::string head = "I20261129 08:00:00.000000 7 worker_stats.cc:9] ";
  EXPECT_TRUE(IsStepLine(head + "job a-1 rank 0 epoch 1 step 30 loss 0.5 examples/s 9000"));
  EXPECT_FALSE(IsStepLine(head + "job a-1 rank 0: resumes epoch 2 after 30 of 60 steps"));
  EXPECT_FALSE(IsStepLine(head + "job a-1: ended"));
  EXPECT_FALSE(IsStepLine("job a-1 rank 0 epoch 1 step 30 loss 0.5"));
}

TEST(NamesJobTest, TheIdMustBeAWholeWord) {
  EXPECT_TRUE(NamesJob("x] job a-1: ended", "a-1"));
  EXPECT_TRUE(NamesJob("model in /out/a-1/model", "a-1"));
  EXPECT_TRUE(NamesJob("after a-12 comes a-1", "a-1"));
  EXPECT_FALSE(NamesJob("job a-12: ended", "a-1"));
  EXPECT_FALSE(NamesJob("job aa-1: ended", "a-1"));
  EXPECT_FALSE(NamesJob("job a-1-2: ended", "a-1"));
}

TEST(JobNamedInTest, TheJobOfALineIsFound) {
  EXPECT_EQ(JobNamedIn("I1129 job adult-12: running"), "adult-12");
  EXPECT_EQ(JobNamedIn("I1129 job wide-deep-3, which"), "wide-deep-3");
  EXPECT_EQ(JobNamedIn("I1129 job adult submitted"), "");
  EXPECT_EQ(JobNamedIn("no job - here, nor a myjob x-1"), "");
}

}  // namespace
}  // namespace sluice::cli
