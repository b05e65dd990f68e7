#include "common/base/limited_log.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/common/base/fake_clock.h"

namespace sluice {
namespace {

class LimitedLogTest : public testing::Test {
 protected:
  void Make(int burst, absl::Duration line_every, bool write_repeats) {
    LimitedLog::Limits limits;
    limits.burst = burst;
    limits.line_every = line_every;
    limits.write_repeats = write_repeats;
    log_ = std::make_unique<LimitedLog>(
        &clock_, limits, [this](const std::string& line) { lines_.push_back(line); });
  }
  FakeClock clock_;
  std::vector<std::string> lines_;
  std::unique_ptr<LimitedLog> log_;
};

TEST_F(LimitedLogTest, ALineIsCutAndMadePrintable) {
  Make(10, absl::Seconds(1), true);
  log_->Say("a\nI1125 forged");
  log_->Say(std::string(100000, 'x'));
  ASSERT_EQ(lines_.size(), 2u);
  EXPECT_EQ(lines_[0], "a\\x0aI1125 forged");
  EXPECT_LE(lines_[1].size(), LimitedLog::kMaxLineBytes + 3);
}

TEST_F(LimitedLogTest, RepeatedLinesAreCountedNotWritten) {
  Make(10, absl::Seconds(1), false);
  for (int i = 0; i < 5; ++i) log_->Say("again");
  clock_.Advance(absl::Hours(1));
  log_->Say("again");
  log_->Say("another");
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_EQ(lines_[0], "again");
  EXPECT_EQ(lines_[1].substr(0, 2), "5 ");
  EXPECT_EQ(lines_[2], "another");
}

TEST_F(LimitedLogTest, AFloodGetsOneLineASecondAfterTheBurst) {
  Make(100, absl::Seconds(1), false);
  for (int i = 0; i < 300; ++i) log_->Say(absl::StrCat("line ", i));
  EXPECT_EQ(lines_.size(), 100u);
  lines_.clear();
  clock_.Advance(absl::Seconds(2));
  for (int i = 0; i < 100; ++i) log_->Say(absl::StrCat("later ", i));
  EXPECT_EQ(lines_.size(), 3u) << "two lines, and how many were left out";
}

TEST_F(LimitedLogTest, WithoutABurstALineThatStaysTrueIsWrittenAgainAfterTheInterval) {
  Make(1, absl::Seconds(10), true);
  log_->Say("no room");
  clock_.Advance(absl::Seconds(9));
  log_->Say("no room");
  log_->Say("no room for another");
  EXPECT_EQ(lines_.size(), 1u);
  clock_.Advance(absl::Seconds(1));
  log_->Say("no room");
  ASSERT_EQ(lines_.size(), 3u);
  EXPECT_EQ(lines_[1].substr(0, 2), "2 ");
  EXPECT_EQ(lines_[2], "no room");
}

}  // namespace
}  // namespace sluice
