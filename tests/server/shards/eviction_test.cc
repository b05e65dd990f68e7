#include "server/shards/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

namespace sluice {
namespace {

EvictConfig By(EvictConfig::Score score, double half_life_days = 0) {
  EvictConfig config;
  config.set_score(score);
  config.set_half_life_days(half_life_days);
  return config;
}

// The ids of the rows in the order in which they leave.
std::vector<uint32_t> Order(const EvictionOrder& order, const std::vector<RowFacts>& rows) {
  std::vector<EvictionCandidate> all;
  for (const RowFacts& row : rows) all.push_back(order.Of(row, static_cast<uint32_t>(all.size())));
  std::sort(all.begin(), all.end());
  std::vector<uint32_t> ids;
  for (const EvictionCandidate& one : all) ids.push_back(one.row);
  return ids;
}

TEST(EvictionTest, TheLowestScoreLeavesFirst) {
  const float none[] = {0, 0}, some[] = {0.5f, -0.5f}, much[] = {-3, 0};
  const std::vector<RowFacts> rows = {{1, 7, 30, none}, {2, 9, 10, some}, {3, 8, 20, much}};
  using Ids = std::vector<uint32_t>;
  EXPECT_EQ(Order({By(EvictConfig::COUNT), 2, nullptr}, rows), (Ids{0, 2, 1}));
  EXPECT_EQ(Order({By(EvictConfig::LAST_USE), 2, nullptr}, rows), (Ids{1, 2, 0}));
  EXPECT_EQ(Order({By(EvictConfig::NORM), 2, nullptr}, rows), (Ids{0, 1, 2}));
}

TEST(EvictionTest, WeightsThatAreNotFiniteLeaveLast) {
  const float nan[] = {NAN}, infinite[] = {-INFINITY}, large[] = {3e38f};
  EXPECT_EQ(Order({By(EvictConfig::NORM), 1, nullptr},
                  {{1, 1, 5, nan}, {2, 1, 4, infinite}, {3, 1, 6, large}}),
            (std::vector<uint32_t>{2, 1, 0}));
}

TEST(EvictionTest, AmongEqualScoresTheOlderRowLeavesFirst) {
  const float w[] = {1};
  EXPECT_EQ(Order({By(EvictConfig::COUNT), 1, nullptr}, {{1, 2, 5, w}, {2, 2, 4, w}, {3, 2, 6, w}}),
            (std::vector<uint32_t>{1, 0, 2}));
}

TEST(EvictionTest, ACountHalvesWithEachHalfLife) {
  const float w[] = {1};
  // The days since schedule steps 0, 100 and 200, of 10 days each.
  const auto days = [](uint64_t step) { return static_cast<uint32_t>(20 - step / 10); };
  const EvictionOrder order(By(EvictConfig::COUNT, 10), 1, days);
  EXPECT_DOUBLE_EQ(order.Of({1, 8, 0, w}, 0).score, 2);
  EXPECT_DOUBLE_EQ(order.Of({1, 8, 100, w}, 0).score, 4);
  EXPECT_DOUBLE_EQ(order.Of({1, 8, 200, w}, 0).score, 8);
  EXPECT_EQ(Order(order, {{1, 9, 0, w}, {2, 3, 200, w}, {3, 5, 100, w}}),
            (std::vector<uint32_t>{0, 2, 1}));
}

// The place of a row in memory must not decide: it differs after a restore.
TEST(EvictionTest, WhichRowsLeaveDoesNotDependOnTheirPlaces) {
  std::mt19937_64 random(1);
  const float w[] = {1};
  const EvictionOrder order(By(EvictConfig::COUNT), 1, nullptr);
  std::vector<RowFacts> rows;
  for (uint64_t key = 0; key < 3000; ++key)
    rows.push_back({key, static_cast<uint32_t>(random() % 3), random() % 4, w});
  std::set<uint64_t> first;
  for (int round = 0; round < 3; ++round) {
    std::vector<EvictionCandidate> all;
    for (const RowFacts& row : rows)
      all.push_back(order.Of(row, static_cast<uint32_t>(all.size())));
    MoveFirstToLeave(1234, &all);
    std::set<uint64_t> leave;
    for (size_t i = 0; i < 1234; ++i) leave.insert(rows[all[i].row].key);
    const auto lowest = std::min_element(all.begin() + 1234, all.end());
    for (size_t i = 0; i < 1234; ++i) ASSERT_TRUE(all[i] < *lowest);
    if (round == 0) first = leave;
    EXPECT_EQ(leave, first);
    std::shuffle(rows.begin(), rows.end(), random);
  }
}

TEST(EvictionTest, AnEvictionLeaves95Percent) {
  EXPECT_EQ(RowsAfterEviction(1000), 950u);
  EXPECT_EQ(RowsAfterEviction(19), 19u);
}

}  // namespace
}  // namespace sluice
