#include "cli/screen/table_stats_text.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace sluice::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

FolderStats Checkpoint() {
  FolderStats stats;
  stats.checkpoint = true;
  stats.global_step = 600;
  TableStats table;
  table.name = "items";
  table.rows = 4000;
  table.expired = 12;
  table.schedule_steps = 1600;
  table.today = 20'000;
  table.turnover.set_deleted(5);
  for (int i = 0; i < 3000; ++i) table.count.Add(1);
  for (int i = 0; i < 1000; ++i) table.count.Add(6);
  for (int i = 0; i < 4000; ++i) table.norm.Add(0.3);
  for (int i = 0; i < 4000; ++i) table.age_steps.Add(0);
  for (int i = 0; i < 4000; ++i) table.age_days.Add(0);
  stats.tables.push_back(table);
  return stats;
}

TEST(TableStatsTextTest, HistogramsHaveSharesAndTheirSums) {
  const std::string text = TableStatsText("step-600", Checkpoint());
  EXPECT_THAT(text, HasSubstr("3,000   75.0%   75.0%"));
  EXPECT_THAT(text, HasSubstr("4-7"));
  EXPECT_THAT(text, HasSubstr("1,000   25.0%  100.0%"));
  EXPECT_THAT(text, HasSubstr("0.25-0.5"));
  EXPECT_THAT(text, HasSubstr("12 more rows"));
  EXPECT_THAT(text, HasSubstr("5 deleted"));
  EXPECT_THAT(text, HasSubstr("2024-10-04"));
  EXPECT_THAT(text, Not(HasSubstr("evicted")));
  size_t begin = 0;
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 80u) << text.substr(begin, end - begin);
}

TEST(TableStatsTextTest, AModelSaysThatItHasNoCounts) {
  FolderStats stats = Checkpoint();
  stats.checkpoint = false;
  stats.tables[0].count = stats.tables[0].age_steps = PowerHistogram();
  stats.tables[0].today.reset();
  const std::string text = TableStatsText("model", stats);
  EXPECT_THAT(text, HasSubstr("no counts and ages"));
  EXPECT_THAT(text, Not(HasSubstr("updates of a row")));
  EXPECT_THAT(TableStatsJson("model", stats), Not(HasSubstr("count")));
}

TEST(TableStatsTextTest, JsonHasTheFigures) {
  const std::string json = TableStatsJson("a \"b\"", Checkpoint());
  EXPECT_THAT(json, HasSubstr("\"folder\": \"a \\\"b\\\"\""));
  EXPECT_THAT(json, HasSubstr("{\"from\": 4, \"below\": 8, \"rows\": 1000}"));
  EXPECT_THAT(json, HasSubstr("\"age_steps\": [{\"from\": 0, \"below\": 0, \"rows\": 4000}]"));
  EXPECT_THAT(json, HasSubstr("\"day\": \"2024-10-04\""));
  EXPECT_THAT(json, HasSubstr("\"deleted\": 5"));
}

}  // namespace
}  // namespace sluice::cli
