#include "server/row_store.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <vector>

namespace sluice {
namespace {

TEST(RowStoreTest, BehavesAsAMapUnderRandomOperations) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    RowStore store(3, 2, ReadyPages::OfProcess());
    std::map<uint64_t, std::vector<float>> reference;
    for (int round = 0; round < 400; ++round) {
      std::vector<uint64_t> keys(random() % 70);
      for (uint64_t& key : keys) key = random() % 3 == 0 ? random() % 500 : random() % 20000;
      std::vector<uint32_t> rows(keys.size());
      store.Find(keys.data(), keys.size(), rows.data());
      for (size_t i = 0; i < keys.size(); ++i) {
        ASSERT_EQ(rows[i] != RowStore::kNoRow, reference.count(keys[i]) == 1) << keys[i];
        if (rows[i] == RowStore::kNoRow) continue;
        ASSERT_EQ(store.header(rows[i])->key, keys[i]);
        for (int f = 0; f < 5; ++f) ASSERT_EQ(store.weights(rows[i])[f], reference[keys[i]][f]);
      }
      for (uint64_t key : keys) {
        bool created;
        const uint32_t row = store.FindOrInsert(key, &created);
        ASSERT_EQ(created, reference.count(key) == 0);
        std::vector<float>& floats = reference[key];
        floats.resize(5);
        for (int f = 0; f < 5; ++f) {
          ASSERT_EQ(store.weights(row)[f], floats[f]);
          floats[f] = store.weights(row)[f] = static_cast<float>(random() % 1000);
        }
        ++store.header(row)->count;
      }
      ASSERT_EQ(store.size(), reference.size());
    }
  }
}

TEST(RowStoreTest, SmallestAndLargestKeysAreOrdinary) {
  RowStore store(1, 0, ReadyPages::OfProcess());
  const uint64_t keys[] = {0, UINT64_MAX, 1, uint64_t{1} << 63};
  uint32_t rows[4];
  store.Find(keys, 4, rows);
  for (uint32_t row : rows) EXPECT_EQ(row, RowStore::kNoRow);
  bool created;
  for (uint64_t key : keys) store.FindOrInsert(key, &created);
  store.Find(keys, 4, rows);
  for (uint32_t i = 0; i < 4; ++i) EXPECT_EQ(rows[i], i);
}

// Keys whose hashes share their high bits stay in one run of the index through several growths.
TEST(RowStoreTest, KeysOfOneSlotAreKeptApart) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; keys.size() < 200; ++key) {
    if (RowStore::HashForTest(key) >> 54 == 7) keys.push_back(key);
  }
  RowStore store(1, 0, ReadyPages::OfProcess());
  std::vector<uint32_t> rows(keys.size());
  for (size_t i = 0; i < keys.size(); ++i) {
    bool created;
    EXPECT_EQ(store.FindOrInsert(keys[i], &created), i);
    EXPECT_TRUE(created);
    store.Find(keys.data(), keys.size(), rows.data());
    for (size_t j = 0; j < keys.size(); ++j) ASSERT_EQ(rows[j], j <= i ? j : RowStore::kNoRow);
  }
}

// Keys whose home is the last slot can only go to the spill map.
TEST(RowStoreTest, KeepsKeysThatProbingDrivesPastTheLastSlot) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; keys.size() < 300; ++key) {
    if (RowStore::HashForTest(key) >> 54 == 1023) keys.push_back(key);
  }
  RowStore store(1, 0, ReadyPages::OfProcess());
  std::vector<uint32_t> rows(keys.size());
  bool created, while_growing = false;
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(store.FindOrInsert(keys[i], &created), i);
    EXPECT_TRUE(created);
    while_growing |= store.growing_for_test() && store.spilled_for_test() > 0;
    store.Find(keys.data(), keys.size(), rows.data());
    for (size_t j = 0; j < keys.size(); ++j) ASSERT_EQ(rows[j], j <= i ? j : RowStore::kNoRow);
  }
  EXPECT_GT(store.spilled_for_test(), 100);
  EXPECT_TRUE(while_growing);
}

TEST(RowStoreTest, VisitsSeeRowsThatEarlierVisitsInserted) {
  RowStore store(3, 1, ReadyPages::OfProcess());
  std::vector<uint64_t> keys;
  for (uint64_t i = 0; i < 5000; ++i) keys.push_back(i * i % 1709);
  size_t next = 0, created_rows = 0;
  store.VisitRows(keys.data(), keys.size(), 4, [&](size_t i, RowStore::Row row) {
    ASSERT_EQ(i, next++);
    if (row.header == nullptr) {
      bool created;
      row = store.row(store.FindOrInsert(keys[i], &created));
      ASSERT_TRUE(created);
      ++created_rows;
    }
    ASSERT_EQ(row.header->key, keys[i]);
    ++row.header->count;
    row.weights[0] = row.state[0] = static_cast<float>(row.header->count);
  });
  EXPECT_EQ(next, keys.size());
  EXPECT_EQ(created_rows, store.size());
  uint32_t visits = 0;
  for (uint32_t id = 0; id < store.size(); ++id) {
    visits += store.header(id)->count;
    EXPECT_EQ(store.state(id), store.weights(id) + 3);
    EXPECT_EQ(store.state(id)[0], static_cast<float>(store.header(id)->count));
  }
  EXPECT_EQ(visits, keys.size());
}

// The header promises at most 20 % above key, weights and state at dim 16 with Adam.
TEST(RowStoreTest, RowTakesLittleMoreMemoryThanItsPayload) {
  constexpr size_t kPayload = 8 + 16 * 4 + 32 * 4;
  RowStore store(16, 32, ReadyPages::OfProcess());
  bool created;
  for (uint64_t key = 0; key < 400000; ++key) {
    store.FindOrInsert(key, &created);
    // Only whole blocks are allocated, so small stores take more per row. While the index grows,
    // memory that the kernel has not given yet counts as reserved.
    if (key < 100000 || store.growing_for_test()) continue;
    ASSERT_LE(store.reserved_bytes(), store.size() * kPayload * 1.2 + 3 * MappedMemory::kHugePage)
        << key;
  }
}

TEST(RowStoreTest, FindsEveryRowThroughoutAGrowth) {
  RowStore store(2, 0, ReadyPages::OfProcess());
  std::vector<uint64_t> keys;
  std::vector<uint32_t> rows;
  int while_growing = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    keys.push_back(i * 7919);
    bool created;
    store.FindOrInsert(keys.back(), &created);
    if (!store.growing_for_test()) continue;
    ++while_growing;
    rows.resize(keys.size());
    store.Find(keys.data(), keys.size(), rows.data());
    for (size_t j = 0; j < keys.size(); ++j) ASSERT_EQ(rows[j], j);
  }
  EXPECT_GT(while_growing, 100);
}

TEST(RowStoreTest, RowsNeverMove) {
  RowStore store(16, 32, ReadyPages::OfProcess());
  bool created;
  const float* first = store.weights(store.FindOrInsert(42, &created));
  for (uint64_t key = 100; key < 50000; ++key) store.FindOrInsert(key, &created);
  EXPECT_EQ(store.weights(store.FindOrInsert(42, &created)), first);
  EXPECT_FALSE(created);
  EXPECT_GE(store.reserved_bytes(), store.size() * (24 + 48 * 4));
}

TEST(RowStoreTest, BytesCountRowsAndReservedBytesCountBlocksAndIndex) {
  RowStore store(3, 6, ReadyPages::OfProcess());  // 24 + 4 x 9 = 60, padded to 64
  EXPECT_EQ(store.bytes(), 0u);
  EXPECT_GE(store.reserved_bytes(), 64u * sizeof(uint64_t));  // of the first index
  bool created;
  for (uint64_t key = 0; key < 100; ++key) store.FindOrInsert(key % 10, &created);
  EXPECT_EQ(store.bytes(), 10u * 64);
  EXPECT_GE(store.reserved_bytes(), MappedMemory::kHugePage);
}

}  // namespace
}  // namespace sluice
