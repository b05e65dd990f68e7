#include "common/daemon/table_rows.h"

#include <gmock/gmock.h>

namespace sluice {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TableStatus Shards(uint64_t rows, uint64_t limit) {
  TableStatus table;
  table.set_name("e");
  table.set_kind(TableConfig::SPARSE);
  table.set_shards(4);
  table.set_rows(rows);
  table.set_row_limit(limit);
  return table;
}

TEST(TableRowsTest, ShardsOfSeveralPserversMakeATable) {
  TableStatus one = Shards(10, 100), sum;
  one.mutable_turnover()->set_admitted(1);
  one.mutable_turnover()->set_refused(2);
  one.mutable_turnover()->set_expired(3);
  one.mutable_turnover()->set_evicted(4);
  one.mutable_turnover()->set_deleted(5);
  AddShards(one, &sum);
  AddShards(one, &sum);
  EXPECT_EQ(sum.name(), "e");
  EXPECT_EQ(sum.kind(), TableConfig::SPARSE);
  EXPECT_EQ(sum.shards(), 8u);
  EXPECT_EQ(sum.rows(), 20u);
  EXPECT_EQ(sum.row_limit(), 200u);
  EXPECT_EQ(sum.turnover().admitted(), 2u);
  EXPECT_EQ(sum.turnover().refused(), 4u);
  EXPECT_EQ(sum.turnover().expired(), 6u);
  EXPECT_EQ(sum.turnover().evicted(), 8u);
  EXPECT_EQ(sum.turnover().deleted(), 10u);
}

TEST(TableRowsTest, OnlyATableWhoseRowsComeAndGoIsDescribed) {
  TableStatus table = Shards(2000, 0);
  table.mutable_turnover()->set_admitted(2000);
  EXPECT_EQ(DescribeRows(table), "");
  table.mutable_turnover()->set_evicted(1234567);
  EXPECT_EQ(DescribeRows(table), "2,000 rows, 2,000 admitted, 1,234,567 evicted");
  EXPECT_EQ(DescribeRows(Shards(999, 10000)), "999 of at most 10,000 rows");
}

TEST(TableRowsTest, ATableThatIsNearlyFullIsWarnedOf) {
  TableConfig config;
  config.set_name("e");
  config.set_max_rows(1000);
  EXPECT_EQ(RowLimitWarning(Shards(91, 100), config), "");
  EXPECT_THAT(RowLimitWarning(Shards(92, 100), config),
              AllOf(HasSubstr("'e'"), HasSubstr("max_rows, 1000"), HasSubstr("evict")));
  EXPECT_EQ(RowLimitWarning(Shards(92, 100), config), RowLimitWarning(Shards(99, 100), config));
  EXPECT_EQ(RowLimitWarning(Shards(90, 0), config), "");
  // The job fails when its fullest shard does, however empty the others are.
  TableStatus uneven = Shards(60, 100);
  for (const uint64_t rows : {12, 12, 22, 14}) uneven.add_each()->set_rows(rows);
  EXPECT_EQ(RowLimitWarning(uneven, config), "");
  uneven.mutable_each(2)->set_rows(23);  // of 25
  EXPECT_EQ(RowLimitWarning(uneven, config), RowLimitWarning(Shards(100, 100), config));
  config.mutable_evict();
  EXPECT_EQ(RowLimitWarning(Shards(100, 100), config), "");
}

}  // namespace
}  // namespace sluice
