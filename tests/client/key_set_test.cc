// Checks KeyDeduplicator against std::map.
#include "client/key_set.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "tests/client/two_tables.h"

namespace sluice {
namespace {

TEST(KeySetTest, OffsetsMustFitTheShardsAndTheKeys) {
  const ShardIndex index(TwoTables());
  auto check = [&](std::vector<uint32_t> offsets, uint32_t table = kRows) {
    const KeySet keys = {{5, 6, 7}, std::move(offsets)};
    return CheckKeys(index, table, &keys).code();
  };
  constexpr auto kBad = absl::StatusCode::kInvalidArgument;
  EXPECT_EQ(check({0, 1, 1, 3, 3}), absl::StatusCode::kOk);
  EXPECT_EQ(check({0, 1, 3, 3}), kBad) << "the offsets lack a shard";
  EXPECT_EQ(check({1, 1, 1, 3, 3}), kBad) << "the first key has no shard";
  EXPECT_EQ(check({0, 1, 1, 2, 2}), kBad) << "the last key has no shard";
  EXPECT_EQ(check({0, 2, 1, 3, 3}), kBad) << "not ascending";
  EXPECT_EQ(check({}), kBad);
  EXPECT_EQ(check({0, 1, 1, 3, 3}, kWeights), kBad) << "a dense table";
  EXPECT_EQ(check({0, 1, 1, 3, 3}, 2), kBad) << "no table";
  EXPECT_EQ(CheckKeys(index, kRows, nullptr).code(), kBad);
}

std::shared_ptr<const TableLayout> SparseTable(uint32_t shards) {
  TableConfig config;
  config.set_name("emb");
  config.set_kind(TableConfig::SPARSE);
  config.set_num_shards(shards);
  ColumnGroup* column = config.add_columns();
  column->set_name("w");
  column->set_dim(4);
  column->mutable_initializer()->set_constant(0);
  column->mutable_optimizer()->mutable_sgd();
  column->mutable_optimizer()->set_learning_rate(1);
  auto table = TableLayout::Create(0, config, 1);
  EXPECT_TRUE(table.ok()) << table.status();
  return *table;
}

void Check(const TableLayout& table, const std::vector<uint64_t>& keys, const KeySet& unique,
           const std::vector<uint32_t>& index) {
  std::map<uint64_t, size_t> first;  // key -> its first occurrence
  for (size_t i = 0; i < keys.size(); ++i) first.emplace(keys[i], i);
  ASSERT_EQ(unique.keys.size(), first.size());
  ASSERT_EQ(unique.offsets.size(), table.num_shards() + 1);
  ASSERT_EQ(unique.offsets.front(), 0u);
  ASSERT_EQ(unique.offsets.back(), unique.keys.size());
  for (uint32_t s = 0; s < table.num_shards(); ++s) {
    for (uint32_t i = unique.offsets[s]; i < unique.offsets[s + 1]; ++i) {
      ASSERT_EQ(table.ShardOf(unique.keys[i]), s);
      if (i > unique.offsets[s]) {
        ASSERT_LT(first.at(unique.keys[i - 1]), first.at(unique.keys[i])) << "order in a shard";
      }
    }
  }
  for (size_t i = 0; i < keys.size(); ++i) ASSERT_EQ(unique.keys[index[i]], keys[i]);
}

TEST(KeyDeduplicatorTest, AgreesWithAMapFromCallToCall) {
  std::mt19937_64 random(7);
  KeyDeduplicator deduplicator;
  KeySet unique;
  for (int round = 0; round < 60; ++round) {
    const auto table = SparseTable(round % 2 == 0 ? 16 : 1 + round % 7);
    const size_t n = random() % 3000;
    const uint64_t range = 1 + random() % 4000;
    std::vector<uint64_t> keys(n);
    for (uint64_t& key : keys) key = random() % range * (round % 3 == 0 ? 1 : 0x9E3779B97F4A7C15u);
    std::vector<uint32_t> index(n);
    deduplicator.Run(*table, keys.data(), n, &unique, index.data());
    Check(*table, keys, unique, index);
  }
}

TEST(KeyDeduplicatorTest, NoKeysGiveEmptyShards) {
  const auto table = SparseTable(4);
  KeyDeduplicator deduplicator;
  KeySet unique;
  deduplicator.Run(*table, nullptr, 0, &unique, nullptr);
  EXPECT_EQ(unique.offsets, std::vector<uint32_t>(5, 0));
}

TEST(KeyDeduplicatorTest, AcceptsZeroAndTheLargestKey) {
  const auto table = SparseTable(4);
  KeyDeduplicator deduplicator;
  KeySet unique;
  const std::vector<uint64_t> keys = {0, UINT64_MAX, 0, UINT64_MAX, 1};
  std::vector<uint32_t> index(keys.size());
  deduplicator.Run(*table, keys.data(), keys.size(), &unique, index.data());
  Check(*table, keys, unique, index);
}

}  // namespace
}  // namespace sluice
