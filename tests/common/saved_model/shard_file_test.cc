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

TEST(ShardFileNameTest, TheSaveIdIsPartOfTheName) {
  uint32_t shard = 0;
  EXPECT_EQ(ShardFileName("deep/0", 12, "00000000000000ff"), "deep.0-12.00000000000000ff.shard");
  EXPECT_TRUE(ParseShardFileName("deep.0-12.00000000000000ff.shard", "deep/0", &shard));
  EXPECT_EQ(shard, 12u);
  // A file belongs to exactly one table, even if one name begins with another.
  EXPECT_TRUE(ParseShardFileName("a-1.b-2.shard", "a-1.b", &shard));
  EXPECT_FALSE(ParseShardFileName("a-1.b-2.shard", "a", &shard));
  for (const char* name : {"a-1..shard", "a-1.00ff.shard", "a-1.00000000000000FF.shard",
                           "a-1.00000000000000ff.b.shard", "a-1.00000000000000f_.shard"})
    EXPECT_FALSE(ParseShardFileName(name, "a", &shard)) << name;
}

TEST(ShardFileNameTest, OtherNamesDoNotBelongToTheTable) {
  uint32_t shard = 0;
  for (const char* name :
       {"a-1-0.shard", "b-0.shard", "a-01.shard", "a-+1.shard", "a- 1.shard", "a-.shard",
        "a-0.shard.unfinished", "a-4294967296.shard", "a-0", "-", ""}) {
    EXPECT_FALSE(ParseShardFileName(name, "a", &shard)) << name;
  }
  EXPECT_TRUE(ParseShardFileName("a-1-0.shard", "a-1", &shard));
}

TEST(ShardFileNameTest, OnlyNamesThatASaveGivesAreOfSomeTable) {
  for (const char* name : {"a-0.shard", "deep.0.weight-12.00000000000000ff.shard", "a-1-0.shard"})
    EXPECT_TRUE(IsShardFileName(name)) << name;
  for (const char* name : {"a.shard", "-0.shard", "a-0.old.shard", "a-0 (1).shard", "a-01.shard",
                           "a-0.00000000000000ff.shard.bak", ""})
    EXPECT_FALSE(IsShardFileName(name)) << name;
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
