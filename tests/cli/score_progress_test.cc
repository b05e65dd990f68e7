#include "cli/score_progress.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tests/common/base/fake_clock.h"

namespace sluice::cli {
namespace {

TEST(ScoreProgressTest, PlainLineIsPrintedOncePerInterval) {
  FakeClock clock;
  std::ostringstream out;
  ScoreProgress progress(ProgressMode::kPlain, &clock, &out);
  progress.Update(10);
  EXPECT_EQ(out.str(), "");
  clock.Advance(ScoreProgress::kPlainEvery);
  progress.Update(5000);
  EXPECT_EQ(out.str(), "scored 5,000 lines, 500 lines/s\n");
  progress.Update(6000);
  progress.Clear();
  EXPECT_EQ(out.str(), "scored 5,000 lines, 500 lines/s\n");
}

TEST(ScoreProgressTest, LiveLineIsRewrittenAndRemoved) {
  FakeClock clock;
  std::ostringstream out;
  {
    ScoreProgress progress(ProgressMode::kLive, &clock, &out);
    clock.Advance(absl::Seconds(1));
    progress.Update(1000);
    EXPECT_EQ(out.str(), "\rscored 1,000 lines, 1,000 lines/s");
    clock.Advance(absl::Seconds(9));
    progress.Update(1000);
    const std::string last = "scored 1,000 lines, 100 lines/s";
    EXPECT_EQ(out.str(), "\rscored 1,000 lines, 1,000 lines/s\r" + last + "  ");
    out.str("");
  }
  EXPECT_EQ(out.str(), "\r" + std::string(31, ' ') + "\r");
}

}  // namespace
}  // namespace sluice::cli
