// A job whose values count pushes: those of rank r add one to column r of some rows, and perhaps to
// the elements e of the dense table with e % kDim == r.
//
// Items name what is counted: 0 to kKeys - 1 are rows, kDenseItem is the dense table.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/client/cluster_for_test.h"

namespace sluice {

inline constexpr uint32_t kKeys = 48, kDenseItem = kKeys, kItems = kKeys + 1;
// Six of the smallest rings of shared memory.
inline constexpr uint64_t kManyElements = 6000;

inline uint64_t KeyOf(uint32_t item) { return item * 0x9E3779B97F4A7C15u; }
inline uint32_t ItemOf(uint64_t key) {
  uint32_t item = 0;
  while (KeyOf(item) != key) ++item;
  return item;
}

inline JobSpec CountingJob(TestMode mode, uint32_t pservers, uint32_t ranks) {
  JobSpec job = MakeJob(mode, pservers, ranks);
  job.mutable_tables(kDense)->set_shape(0, kManyElements);
  job.mutable_config()->mutable_strategy()->mutable_a_sync_configs()->set_geo_merge(
      ASyncConfigs::SUM);
  return job;
}

// The dense table's item is the last one, if it is there.
inline bool HasDense(const std::vector<uint32_t>& items) {
  return !items.empty() && items.back() == kDenseItem;
}

// The keys of these items, and the values of both tables.
inline std::shared_ptr<TestValues> ValuesOf(const ParameterClient& client,
                                            const std::vector<uint32_t>& items, float value) {
  std::vector<uint64_t> keys;
  for (const uint32_t item : items) {
    if (item != kDenseItem) keys.push_back(KeyOf(item));
  }
  auto values = std::make_shared<TestValues>(client, keys);
  std::fill(values->rows.begin(), values->rows.end(), value);
  values->dense.assign(kManyElements, value);
  return values;
}

// A push that changes the counts of these items by `change` times the learning rate.
inline PushRequest CountingPush(const ParameterClient& client, uint32_t rank,
                                const std::vector<uint32_t>& items, float change) {
  const auto one = ValuesOf(client, items, 0);
  for (size_t i = rank; i < one->rows.size(); i += kDim) one->rows[i] = change;
  for (size_t i = rank; i < one->dense.size(); i += kDim) one->dense[i] = change;
  PushRequest push = TestValues::Push(one, 1);
  if (!HasDense(items)) push.dense.clear();
  return push;
}

// The values of a rank at an item.
inline std::vector<float> CountsAt(const TestValues& values, uint32_t item, uint32_t rank) {
  if (item != kDenseItem) return {values.Row(KeyOf(item), rank)};
  std::vector<float> counts;
  for (size_t i = rank; i < values.dense.size(); i += kDim) counts.push_back(values.dense[i]);
  return counts;
}

// The shard of each item; the dense table is the last one.
inline std::vector<uint32_t> ShardsOfItems(const ParameterClient& client) {
  std::vector<uint32_t> shards;
  const TableLayout& emb = *client.tables()[kEmb];
  for (uint32_t item = 0; item < kKeys; ++item) shards.push_back(emb.ShardOf(KeyOf(item)));
  shards.push_back(16);
  return shards;
}

}  // namespace sluice
