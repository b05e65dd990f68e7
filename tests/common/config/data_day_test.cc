#include "common/config/data_day.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(DataDayTest, DaysAreCountedFrom1970) {
  EXPECT_EQ(*ParseDataDay("1970-01-01"), 0);
  EXPECT_EQ(*ParseDataDay("2026-11-30"), 20787);
  EXPECT_EQ(FormatDataDay(20787), "2026-11-30");
  EXPECT_EQ(*ParseDataDay("2028-02-29") + 1, *ParseDataDay("2028-03-01"));
}

TEST(DataDayTest, OtherTextsAreRefused) {
  for (const char* text : {"", "2026-11-3", "2026-11-301", "2026-02-30", "2026/11/30", "26-11-30",
                           "+026-11-30", "2026-11-30T00", "yesterday", "1969-12-31", "2026-13-01"})
    EXPECT_FALSE(ParseDataDay(text).ok()) << text;
}

TEST(DataDayTest, TheDayInThePathsIsTheOneThatAllOfThemHave) {
  DataConfig data;
  EXPECT_EQ(DayInPaths(data), "");
  data.add_train_files("/data/day=2026-11-30/part-*.csv");
  data.add_train_files("/data/other/part-0.csv");
  EXPECT_EQ(DayInPaths(data), "2026-11-30");
  data.add_train_files("s3://bucket/day=2026-11-30/hour=01/*.parquet");
  EXPECT_EQ(DayInPaths(data), "2026-11-30");
  data.add_train_files("/data/day=2026-12-01/part-0.csv");
  EXPECT_EQ(DayInPaths(data), "");
  DataConfig pattern;
  pattern.add_train_files("/data/day=2026-11-*/part-0.csv");
  EXPECT_EQ(DayInPaths(pattern), "");
  DataConfig within;
  within.add_train_files("/data/birthday=2026-11-30/part-0.csv");
  EXPECT_EQ(DayInPaths(within), "");
}

TEST(DataDayTest, OnlyLimitsByDaysNeedIt) {
  JobConfig job;
  job.add_tables()->mutable_expire()->set_after_steps(5);
  EXPECT_FALSE(NeedsDataDay(job));
  job.mutable_tables(0)->mutable_expire()->set_after_days(5);
  EXPECT_TRUE(NeedsDataDay(job));
}

}  // namespace
}  // namespace sluice
