#include "common/table/hash_parts.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "common/base/hash.h"

namespace sluice {
namespace {

TEST(HashPartsTest, EqualNumbersOfPartsAndShardsCorrespond) {
  for (uint32_t part = 0; part < 7; ++part) {
    const ShardSpan span = ShardsOfPart(part, 7, 7);
    EXPECT_EQ(span.first, part);
    EXPECT_EQ(span.last, part);
  }
}

TEST(HashPartsTest, MultipleOfThePartsDividesEachPart) {
  EXPECT_EQ(ShardsOfPart(1, 2, 8).first, 4u);
  EXPECT_EQ(ShardsOfPart(1, 2, 8).last, 7u);
  EXPECT_EQ(ShardsOfPart(5, 8, 2).first, 1u);
  EXPECT_EQ(ShardsOfPart(5, 8, 2).last, 1u);
}

TEST(HashPartsTest, EachKeyIsInAShardOfItsPart) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t key = random();
    const uint32_t parts = 1 + random() % 300, shards = 1 + random() % 300;
    const ShardSpan span = ShardsOfPart(ShardOfKey(key, parts), parts, shards);
    ASSERT_GE(ShardOfKey(key, shards), span.first) << parts << " " << shards;
    ASSERT_LE(ShardOfKey(key, shards), span.last) << parts << " " << shards;
  }
}

TEST(HashPartsTest, NamesNoShardThatCannotHoldKeysOfThePart) {
  std::mt19937_64 random(4);
  std::set<std::pair<uint32_t, uint32_t>> met;  // part among 12, shard among 7
  for (int i = 0; i < 20000; ++i) {
    const uint64_t key = random();
    met.insert({ShardOfKey(key, 12), ShardOfKey(key, 7)});
  }
  size_t named = 0;
  for (uint32_t part = 0; part < 12; ++part) {
    const ShardSpan span = ShardsOfPart(part, 12, 7);
    named += span.last - span.first + 1;
    EXPECT_LT(span.last, 7u);
  }
  EXPECT_EQ(named, met.size());
}

TEST(HashPartsTest, LargestNumbersDoNotOverflow) {
  const uint32_t parts = 0xFFFFFFFF, shards = 1 << 20;
  EXPECT_EQ(ShardsOfPart(parts - 1, parts, shards).last, shards - 1);
  EXPECT_EQ(ShardsOfPart(0, parts, shards).first, 0u);
}

}  // namespace
}  // namespace sluice
