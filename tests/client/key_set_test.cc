#include "client/key_set.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace sluice
