#include "scheduler/service/job_numbers.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

class JobNumbersTest : public testing::Test {
 protected:
  JobNumbersTest() { std::filesystem::remove(path_); }
  uint64_t Next(const std::string& name) { return JobNumbers(Env::Real(), path_).Next(name); }
  absl::Status Took(const std::string& name, uint64_t number) {
    return JobNumbers(Env::Real(), path_).Took(name, number);
  }
  const std::string path_ = testing::TempDir() + "/job_numbers_test";
};

TEST_F(JobNumbersTest, EachNameGoesOnAfterItsNewestNumber) {
  EXPECT_EQ(Next("shop"), 1u);
  ASSERT_TRUE(Took("shop", 1).ok());
  ASSERT_TRUE(Took("click.s-2", 7).ok());
  ASSERT_TRUE(Took("shop", 2).ok());
  EXPECT_EQ(Next("shop"), 3u);
  EXPECT_EQ(Next("click.s-2"), 8u);
  EXPECT_EQ(Next("other"), 1u);
}

TEST_F(JobNumbersTest, TheOldestNamesAreForgotten) {
  std::string text = JobNumbers::kHead;
  for (size_t i = 0; i < JobNumbers::kMostNames; ++i) absl::StrAppend(&text, "job", i, " 4\n");
  ASSERT_TRUE(Env::Real()->WriteFile(path_, {absl::string_view(text)}).ok());
  ASSERT_TRUE(Took("new", 1).ok());
  EXPECT_EQ(Next("job0"), 1u);
  EXPECT_EQ(Next("job1"), 5u);
  EXPECT_EQ(Next("new"), 2u);
}

TEST_F(JobNumbersTest, AForeignFileStaysAndDamagedLinesAreLeftOut) {
  ASSERT_TRUE(Env::Real()->WriteFile(path_, {absl::string_view("shop 5\n")}).ok());
  EXPECT_EQ(Next("shop"), 1u);
  EXPECT_TRUE(absl::IsAlreadyExists(Took("shop", 1)));
  EXPECT_EQ(*Env::Real()->ReadFile(path_), "shop 5\n");
  const std::string odd =
      absl::StrCat(JobNumbers::kHead, "shop\nshop x\nshop 99999999999999999999\na 3\n");
  ASSERT_TRUE(Env::Real()->WriteFile(path_, {absl::string_view(odd)}).ok());
  EXPECT_EQ(Next("shop"), 1u);
  EXPECT_EQ(Next("a"), 4u);
}

TEST_F(JobNumbersTest, LogFoldersOfClustersSideBySideShareTheNumbers) {
  const std::string top = testing::TempDir() + "/job_numbers_test_folders";
  std::filesystem::remove_all(top);
  const auto in = [&](const char* folder) {
    std::filesystem::create_directories(top + "/" + folder);
    return JobNumbers(Env::Real(), absl::StrCat(top, "/", folder, "/job_numbers"));
  };
  JobNumbers first = in("log"), second = in("log-2"), other = in("logs");
  ASSERT_TRUE(first.Took("shop", 4).ok());
  EXPECT_EQ(second.Next("shop"), 5u);
  ASSERT_TRUE(second.Took("shop", 5).ok());
  EXPECT_EQ(first.Next("shop"), 6u);
  EXPECT_EQ(in("log-3").Next("shop"), 6u);
  EXPECT_EQ(other.Next("shop"), 1u);
  std::filesystem::remove_all(top);
}

TEST_F(JobNumbersTest, WithoutAPathNothingIsKept) {
  JobNumbers none(Env::Real(), "");
  EXPECT_TRUE(none.Took("shop", 4).ok());
  EXPECT_EQ(none.Next("shop"), 1u);
}

}  // namespace
}  // namespace sluice
