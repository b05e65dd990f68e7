#include "scheduler/caller_log.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

class CallerLogTest : public testing::Test {
 protected:
  FakeClock clock_;
  std::vector<std::string> lines_;
  CallerLog log_{&clock_, [this](const std::string& line) { lines_.push_back(line); }};
};

TEST_F(CallerLogTest, ALineIsCutAndMadePrintable) {
  log_.Say("a\nI1125 forged");
  log_.Say(std::string(100000, 'x'));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0], "a\\x0aI1125 forged");
  EXPECT_LE(lines_[1].size(), CallerLog::kMaxLineBytes + 3);
}

TEST_F(CallerLogTest, RepeatedLinesAreCountedNotWritten) {
  for (int i = 0; i < 5; ++i) log_.Say("again");
  log_.Say("another");
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_EQ(lines_[0], "again");
  EXPECT_EQ(lines_[1].substr(0, 2), "4 ");
  EXPECT_EQ(lines_[2], "another");
}

TEST_F(CallerLogTest, AFloodGetsOneLineASecond) {
  for (int i = 0; i < 3 * CallerLog::kBurst; ++i) log_.Say(absl::StrCat("line ", i));
  EXPECT_EQ(lines_.size(), static_cast<size_t>(CallerLog::kBurst));
  lines_.clear();
  clock_.Advance(absl::Seconds(2));
  for (int i = 0; i < 100; ++i) log_.Say(absl::StrCat("later ", i));
  EXPECT_EQ(lines_.size(), 3u) << "two lines, and how many were left out";
}

}  // namespace
}  // namespace sluice
