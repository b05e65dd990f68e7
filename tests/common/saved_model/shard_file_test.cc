#include "common/saved_model/shard_file.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ShardFileNameTest, RoundTrips) {
  uint32_t shard = 0;
  EXPECT_EQ(ShardFileName("deep/0/weight", 12), "deep.0.weight-12.shard");
  EXPECT_TRUE(ParseShardFileName("deep.0.weight-12.shard", "deep/0/weight", &shard));
  EXPECT_EQ(shard, 12u);
}

TEST(ShardFileNameTest, ASaveIsPartOfTheName) {
  uint32_t shard = 0;
  EXPECT_EQ(ShardFileName("deep/0", 12, "00ff"), "deep.0-12.00ff.shard");
  EXPECT_TRUE(ParseShardFileName("deep.0-12.00ff.shard", "deep/0", &shard));
  EXPECT_EQ(shard, 12u);
  // Whatever the tables are called, a file is of one of them.
  EXPECT_TRUE(ParseShardFileName("a-1.b-2.shard", "a-1.b", &shard));
  EXPECT_FALSE(ParseShardFileName("a-1.b-2.shard", "a", &shard));
  for (const char* name : {"a-1..shard", "a-1.A.shard", "a-1.b.c.shard", "a-1.b_.shard"})
    EXPECT_FALSE(ParseShardFileName(name, "a", &shard)) << name;
}

TEST(ShardFileNameTest, OtherNamesAreNotOfTheTable) {
  uint32_t shard = 0;
  for (const char* name :
       {"a-1-0.shard", "b-0.shard", "a-01.shard", "a-+1.shard", "a- 1.shard", "a-.shard",
        "a-0.shard.unfinished", "a-4294967296.shard", "a-0", "-", ""}) {
    EXPECT_FALSE(ParseShardFileName(name, "a", &shard)) << name;
  }
  EXPECT_TRUE(ParseShardFileName("a-1-0.shard", "a-1", &shard));
}

TEST(CountElementsTest, AnOverflowingShapeIsDataLoss) {
  TableConfig table;
  table.add_shape(1ull << 40);
  EXPECT_EQ(*CountElements(table), 1ull << 40);
  table.add_shape(1ull << 40);
  EXPECT_EQ(CountElements(table).status().code(), absl::StatusCode::kDataLoss);
}

}  // namespace
}  // namespace sluice
