#include "common/base/hash.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>
#include <vector>

namespace sluice {
namespace {

// An independent implementation computed these values. Saved models, shards and initial values
// depend on them: when a test fails, the code is wrong, never the value.
TEST(HashTest, MixIsFrozen) {
  EXPECT_EQ(MixHash(0), 0u);
  EXPECT_EQ(MixHash(1), 0x5692161d100b05e5u);
  EXPECT_EQ(MixHash(2), 0xdbd238973a2b148au);
  EXPECT_EQ(MixHash(~0ull), 0xb4d055fcf2cbbd7bu);
}

TEST(HashTest, CombineIsFrozenAndOrdered) {
  EXPECT_EQ(CombineHash(0, 0), 0x6db6ca64564daeaau);
  EXPECT_EQ(CombineHash(1, 2), 0x30883360cc68d7b1u);
  EXPECT_EQ(CombineHash(2, 1), 0x604fc2bd55323e12u);
}

TEST(HashTest, BytesAreFrozen) {
  EXPECT_EQ(HashBytes("", 0), 0xffc4465b6d658d32u);
  EXPECT_EQ(HashBytes("a", 0), 0x76ac96b606cf05a6u);
  EXPECT_EQ(HashBytes("1234567", 1), 0xb39b2a0719df824eu);
  EXPECT_EQ(HashBytes("12345678", 0), 0x6c1ccaf68f3a761fu);
  EXPECT_EQ(HashBytes("12345678", 12345), 0xd79a900d21cb9622u);
  EXPECT_EQ(HashBytes("123456789", 0), 0x4786072da7e8dd05u);
  EXPECT_EQ(HashBytes({"Private\0x", 9}, 0), 0x5f77a0c39ce7e2d9u);
  EXPECT_EQ(HashBytes("the quick brown fox jumps", 1), 0x75c2fb5b361b5dc3u);
}

TEST(HashTest, ShardsAreFrozen) {
  const uint64_t keys[] = {0, 1, 77, ~0ull};
  const uint32_t of_16[] = {9, 4, 8, 11}, of_1000[] = {582, 261, 559, 748};
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(ShardOfKey(keys[i], 1), 0u);
    EXPECT_EQ(ShardOfKey(keys[i], 16), of_16[i]);
    EXPECT_EQ(ShardOfKey(keys[i], 1000), of_1000[i]);
  }
}

TEST(HashTest, EveryZeroByteChangesTheHash) {
  std::set<uint64_t> hashes;
  for (size_t n = 0; n < 40; ++n) hashes.insert(HashBytes(std::string(n, '\0'), 0));
  EXPECT_EQ(hashes.size(), 40u);
}

TEST(HashTest, ConsecutiveKeysFillShardsEvenly) {
  std::vector<int> counts(16);
  for (uint64_t key = 0; key < 16000; ++key) ++counts[ShardOfKey(key, 16)];
  for (int count : counts) EXPECT_NEAR(count, 1000, 200);
}

TEST(HashTest, UnitIsInZeroToOne) {
  EXPECT_EQ(HashToUnit(0), 0.0f);
  EXPECT_LT(HashToUnit(~0ull), 1.0f);
  EXPECT_GT(HashToUnit(~0ull), 0.9999f);
}

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
