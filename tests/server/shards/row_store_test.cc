#include "server/shards/row_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "server/shards/no_room.h"
#include "tests/common/base/fake_clock.h"

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

// Rows come, go and come back. `keys`: those that may; erased rows are freed at once or later.
void CheckErasureAgainstAMap(const std::vector<uint64_t>& keys, uint64_t seed, bool* grew_while,
                             size_t* most_spilled) {
  std::mt19937_64 random(seed);
  RowStore store(2, 1, ReadyPages::OfProcess());
  std::map<uint64_t, std::vector<float>> reference;
  std::map<uint32_t, std::vector<float>> unlinked;  // by id: bytes that must stay
  std::set<uint32_t> used;
  const auto floats_of = [&](uint32_t id) {
    return std::vector<float>(store.weights(id), store.weights(id) + 3);
  };
  for (int round = 0; round < 300; ++round) {
    // Phases in which the store grows, and others in which it shrinks.
    const uint64_t insertions = round / 30 % 2 == 0 ? 3 : 1;
    for (int op = 0; op < 40; ++op) {
      const uint64_t key = keys[random() % keys.size()];
      if (random() % 4 < insertions) {
        bool created;
        const uint32_t id = store.FindOrInsert(key, &created);
        ASSERT_EQ(created, reference.count(key) == 0);
        ASSERT_EQ(unlinked.count(id), 0u) << "an unlinked row is not free";
        ASSERT_EQ(store.header(id)->key, key);
        if (created) {
          ASSERT_EQ(store.header(id)->count, 0u);
          ASSERT_EQ(floats_of(id), std::vector<float>(3));
          store.header(id)->version = 1;
        }
        ++store.header(id)->count;
        for (int f = 0; f < 3; ++f) store.weights(id)[f] = static_cast<float>(random() % 1000);
        reference[key] = floats_of(id);
        used.insert(id);
      } else {
        *grew_while |= store.growing_for_test();
        const uint32_t id = store.Unlink(key);
        ASSERT_EQ(id != RowStore::kNoRow, reference.erase(key) == 1);
        if (id == RowStore::kNoRow) continue;
        ASSERT_FALSE(store.is_free(id));
        unlinked[id] = floats_of(id);
      }
      *most_spilled = std::max(*most_spilled, store.spilled_for_test());
    }
    for (auto it = unlinked.begin(); it != unlinked.end();) {
      ASSERT_EQ(floats_of(it->first), it->second);
      if (random() % 3 == 0) {
        ++it;
        continue;
      }
      store.Free(it->first);
      ASSERT_TRUE(store.is_free(it->first));
      it = unlinked.erase(it);
    }
    ASSERT_EQ(store.size(), reference.size());
    ASSERT_EQ(store.slots(), used.size());
    std::vector<uint32_t> rows(keys.size());
    store.Find(keys.data(), keys.size(), rows.data());
    store.VisitRows(keys.data(), keys.size(), 3, [&](size_t i, RowStore::Row row) {
      const auto at = reference.find(keys[i]);
      ASSERT_EQ(row.header != nullptr, at != reference.end()) << keys[i];
      ASSERT_EQ(rows[i] != RowStore::kNoRow, at != reference.end()) << keys[i];
      if (row.header == nullptr) return;
      ASSERT_EQ(row.header->key, keys[i]);
      ASSERT_EQ(floats_of(rows[i]), at->second);
    });
  }
  // Far fewer slots than insertions: freed rows were used again.
  EXPECT_LT(store.slots(), keys.size() + 200);
}

TEST(RowStoreTest, ErasedRowsAreGoneAndTheirMemoryIsUsedAgain) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937_64 random(seed);
    std::vector<uint64_t> keys(900);
    for (uint64_t& key : keys) key = random();
    bool grew_while = false;
    size_t most_spilled = 0;
    CheckErasureAgainstAMap(keys, seed, &grew_while, &most_spilled);
    EXPECT_TRUE(grew_while);
  }
}

// Keys of a few homes, the last one among them, so that runs are long and keys are spilled.
TEST(RowStoreTest, ErasureLeavesKeysOfOneSlotReachable) {
  std::vector<uint64_t> keys;
  for (uint64_t key = 0; keys.size() < 400; ++key) {
    const uint64_t home = RowStore::HashForTest(key) >> 54;
    if (home == 1023 || home == 1022 || home == 7 || home == 6) keys.push_back(key);
  }
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    bool grew_while = false;
    size_t most_spilled = 0;
    CheckErasureAgainstAMap(keys, seed, &grew_while, &most_spilled);
    EXPECT_TRUE(grew_while);
    EXPECT_GT(most_spilled, 20u);
  }
}

// The growth of the index stops at an empty slot that was full when keys of a slot before it were
// spilled.
TEST(RowStoreTest, SpilledKeysStayReachableWhileTheIndexGrowsPastTheirHome) {
  // An index of 128 slots has 80 of them from home 112 on.
  std::vector<uint64_t> keys, others;
  for (uint64_t key = 0; keys.size() < 96 || others.size() < 30; ++key) {
    const uint64_t home = RowStore::HashForTest(key) >> 57;
    if (home == 112 && keys.size() < 96) keys.push_back(key);
    if (home == 0 && others.size() < 30) others.push_back(key);
  }
  RowStore store(1, 0, ReadyPages::OfProcess());
  bool created;
  for (const uint64_t key : keys) store.FindOrInsert(key, &created);
  ASSERT_EQ(store.spilled_for_test(), 16u);
  store.FindOrInsert(others[0], &created);
  ASSERT_TRUE(store.growing_for_test());
  for (size_t i = 0; i < 80; ++i) store.Free(store.Unlink(keys[i]));
  ASSERT_EQ(store.spilled_for_test(), 16u);
  for (size_t i = 1; i < others.size(); ++i) {
    store.FindOrInsert(others[i], &created);
    for (size_t k = 80; k < keys.size(); ++k) {
      uint32_t row;
      store.Find(&keys[k], 1, &row);
      ASSERT_NE(row, RowStore::kNoRow) << k << " after " << i;
    }
  }
  EXPECT_FALSE(store.growing_for_test());
  EXPECT_EQ(store.size(), 16 + others.size());
}

TEST(RowStoreTest, AVisitDoesNotSeeARowThatAnEarlierOneErased) {
  RowStore store(1, 0, ReadyPages::OfProcess());
  bool created;
  for (uint64_t key = 0; key < 20; ++key) store.FindOrInsert(key, &created);
  std::vector<uint64_t> keys(20);
  for (uint64_t i = 0; i < 20; ++i) keys[i] = i;
  store.VisitRows(keys.data(), keys.size(), 1, [&](size_t i, RowStore::Row row) {
    EXPECT_EQ(row.header == nullptr, i % 2 == 1) << i;
    // Its bytes stay, so the row that was prefetched still has its key.
    if (i % 2 == 0) store.Unlink(i + 1);
  });
}

// Rows come and go for long: neither blocks nor index grow, and no probe gets long.
TEST(RowStoreTest, ConstantTurnoverNeedsNoMoreMemory) {
  RowStore store(4, 4, ReadyPages::OfProcess());
  bool created;
  constexpr uint64_t kLive = 50'000;
  for (uint64_t key = 0; key < kLive; ++key) store.FindOrInsert(key, &created);
  uint64_t key = kLive;
  for (; key < 3 * kLive; ++key) {
    store.Free(store.Unlink(key - kLive));
    store.FindOrInsert(key, &created);
  }
  const size_t reserved = store.reserved_bytes(), slots = store.slots();
  for (; key < 20 * kLive; ++key) {
    store.Free(store.Unlink(key - kLive));
    store.FindOrInsert(key, &created);
  }
  EXPECT_EQ(store.reserved_bytes(), reserved);
  EXPECT_EQ(store.slots(), slots);
  EXPECT_EQ(store.size(), kLive);
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

TEST(RowStoreTest, ARowBeyondTheMostIsRefusedAndChangesNothing) {
  RowStore store(1, 0, ReadyPages::OfProcess());
  store.set_most_rows_for_test(100);
  bool created;
  for (uint64_t key = 0; key < 100; ++key) store.FindOrInsert(key, &created);
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(store.FindOrInsert(100, &created), NoRoom);
    EXPECT_EQ(store.size(), 100u);
    for (uint64_t key = 0; key < 100; ++key) EXPECT_EQ(store.FindOrInsert(key, &created), key);
  }
  const uint64_t refused = 100;
  uint32_t row;
  store.Find(&refused, 1, &row);
  EXPECT_EQ(row, RowStore::kNoRow);
}

TEST(RowStoreTest, BytesCountRowsAndReservedBytesCountTakenRoomAndIndex) {
  RowStore store(3, 6, ReadyPages::OfProcess());  // 24 + 4 x 9 = 60, padded to 64
  EXPECT_EQ(store.bytes(), 0u);
  const size_t index = store.reserved_bytes();
  EXPECT_GE(index, 64u * sizeof(uint64_t));
  EXPECT_LE(index, 4096u);
  bool created;
  for (uint64_t key = 0; key < 100; ++key) store.FindOrInsert(key % 10, &created);
  EXPECT_EQ(store.bytes(), 10u * 64);
  EXPECT_EQ(store.reserved_bytes(), index + 4096) << "the first small page";
  constexpr uint64_t kRows = 1'000'000;
  for (uint64_t key = 0; key < kRows; ++key) store.FindOrInsert(key, &created);
  EXPECT_GE(store.reserved_bytes(), kRows * (64 + 10));
  EXPECT_LE(store.reserved_bytes(), kRows * (64 + 30) + MappedMemory::kHugePage);
}

// A machine of which stores use memory as the kernel counts it: by rows that exist.
class RowStoreMemoryTest : public testing::Test {
 protected:
  static constexpr uint64_t kMiB = 1 << 20;
  std::unique_ptr<RowStore> NewStore() {
    return std::make_unique<RowStore>(16, 32, ReadyPages::OfProcess(), memory_);
  }
  void UseFor(size_t rows) { available_ -= rows * kRowBytes; }

  static constexpr uint64_t kRowBytes = 24 + 48 * 4;
  FakeClock clock_;
  uint64_t available_ = 256 * kMiB;  // a reserve of 64 MiB
  uint64_t readings_ = 0;
  const std::shared_ptr<RowMemory> memory_ = std::make_shared<RowMemory>(&clock_, [this] {
    ++readings_;
    return available_;
  });
};

TEST_F(RowStoreMemoryTest, RowsEndAtTheReserveAndTheStoreStaysWhole) {
  for (const bool bulk : {false, true}) {
    available_ = 256 * kMiB;
    readings_ = 0;
    const auto store = NewStore();
    store->set_bulk(bulk);
    bool created;
    uint64_t key = 0;
    for (; store->MakeRoom(); ++key) {
      store->FindOrInsert(key, &created);
      UseFor(1);
      ASSERT_LT(key, 2'000'000u);
    }
    // Blocks are pieces of 2 MiB, and a growing index counts until it has grown.
    EXPECT_GE(available_, 64 * kMiB);
    EXPECT_LE(available_, (64 + 2 + 16) * kMiB);
    EXPECT_LT(readings_, 100u) << "for " << key << " rows";
    EXPECT_THROW(store->FindOrInsert(key, &created), std::bad_alloc);
    EXPECT_EQ(store->size(), key);
    for (uint64_t k = 0; k < key; ++k) ASSERT_EQ(store->FindOrInsert(k, &created), k);
    available_ += 100 * kMiB;
    for (const uint64_t more = key + 50'000; key < more; ++key)
      ASSERT_EQ(store->FindOrInsert(key, &created), key);
  }
}

TEST_F(RowStoreMemoryTest, ManyStoresOfFewRowsTakeWhatTheirRowsTake) {
  std::vector<std::unique_ptr<RowStore>> stores;
  bool created;
  for (uint64_t i = 0; i < 1000; ++i) {
    stores.push_back(NewStore());
    for (uint64_t key = 0; key < 30; ++key) ASSERT_TRUE(stores.back()->MakeRoom()) << i;
    for (uint64_t key = 0; key < 30; ++key) stores.back()->FindOrInsert(key, &created);
    UseFor(30);
  }
  // Their blocks could hold ten times the memory of the machine. A small page is more than a few
  // rows fill.
  uint64_t reserved = 0;
  for (const auto& store : stores) reserved += store->reserved_bytes();
  EXPECT_GT(reserved, 1000 * 30 * kRowBytes);
  EXPECT_LT(reserved, 1000 * 4 * 4096);
}

TEST_F(RowStoreMemoryTest, TheFirstBlocksOfManyStoresAreBoundedTogether) {
  std::vector<std::unique_ptr<RowStore>> stores;
  while (stores.size() < 400) stores.push_back(NewStore());
  bool created, full = false;
  uint64_t rows = 0;
  // Each store fits many times over, but not all of them.
  for (uint64_t key = 0; key < 4000 && !full; ++key) {
    for (const auto& store : stores) {
      if (!store->MakeRoom()) full = true;
      if (full) break;
      store->FindOrInsert(key, &created);
      UseFor(1);
      ++rows;
    }
  }
  EXPECT_TRUE(full);
  EXPECT_GE(available_, 64 * kMiB) << rows;
  // What they have announced is an eighth of what they use.
  EXPECT_LE(available_, 100 * kMiB) << rows;
}

}  // namespace
}  // namespace sluice
