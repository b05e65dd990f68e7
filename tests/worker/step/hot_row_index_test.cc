#include "worker/step/hot_row_index.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

KeySet Keys(std::vector<uint64_t> keys) {
  const uint32_t n = static_cast<uint32_t>(keys.size());
  return {std::move(keys), {0, n}};
}

// Returns the missing keys of `keys` in step `step`, without a pipeline.
std::vector<uint64_t> Missing(HotRowIndex* cache, uint64_t step, std::vector<uint64_t> keys) {
  HotRowIndex::Rows found;
  cache->Find(Keys(std::move(keys)), step, step, &found);
  return found.missing.keys;
}

TEST(HotRowIndexTest, RowIsUsedUpToTheBoundAndThenPulledAgain) {
  HotRowIndex cache(10, 3);
  for (const uint64_t pulled : {0, 4, 8}) {
    EXPECT_THAT(Missing(&cache, pulled, {7}), ElementsAre(7));
    for (uint64_t age = 1; age <= 3; ++age)
      EXPECT_THAT(Missing(&cache, pulled + age, {7}), IsEmpty()) << age;
  }
}

TEST(HotRowIndexTest, AgeCountsFromTheStartOfThePull) {
  HotRowIndex cache(10, 3);
  HotRowIndex::Rows found;
  cache.Find(Keys({7, 8}), /*step=*/5, /*steps_done=*/3, &found);
  EXPECT_EQ(found.use.misses(), 2u);
  EXPECT_EQ(found.use.staleness_sum(), 4u);
  EXPECT_EQ(found.use.staleness_max(), 2u);
  // Step 5 is in flight; the values that it pulls will be in the cache.
  cache.Find(Keys({7, 9}), 6, 4, &found);
  EXPECT_THAT(found.missing.keys, ElementsAre(9));
  EXPECT_EQ(found.use.hits(), 1u);
  EXPECT_EQ(found.use.staleness_sum(), 3u + 2u);
  EXPECT_EQ(found.use.staleness_max(), 3u);
  cache.Find(Keys({7, 9}), 7, 5, &found);
  EXPECT_THAT(found.missing.keys, ElementsAre(7));
}

TEST(HotRowIndexTest, MissingKeysStayGroupedByShard) {
  HotRowIndex cache(10, 3);
  HotRowIndex::Rows found;
  cache.Find({{1, 2, 3, 4, 5}, {0, 2, 2, 5}}, 0, 0, &found);
  EXPECT_THAT(found.missing.offsets, ElementsAre(0, 2, 2, 5));
  EXPECT_EQ(found.missing_slots, found.slots);
  const std::vector<uint32_t> slots = found.slots;
  cache.Find({{6, 2, 8, 3, 5, 9}, {0, 2, 3, 6}}, 1, 1, &found);
  EXPECT_THAT(found.missing.keys, ElementsAre(6, 8, 9));
  EXPECT_THAT(found.missing.offsets, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(found.missing_slots, ElementsAre(found.slots[0], found.slots[2], found.slots[5]));
  EXPECT_EQ(found.slots[1], slots[1]);
  EXPECT_EQ(found.slots[4], slots[4]);
}

TEST(HotRowIndexTest, RowsUsedAgainStayWhenOthersLeave) {
  HotRowIndex cache(4, 1000);
  Missing(&cache, 0, {7, 8});
  for (uint64_t step = 1; step < 100; step += 2) {
    EXPECT_THAT(Missing(&cache, step, {1000 + step}), ElementsAre(1000 + step));
    EXPECT_THAT(Missing(&cache, step + 1, {7, 8}), IsEmpty()) << step;
  }
}

TEST(HotRowIndexTest, RowsThatAreTooOldLeaveFirst) {
  HotRowIndex cache(4, 2);
  Missing(&cache, 0, {1, 2});
  Missing(&cache, 1, {1, 2});  // used again
  Missing(&cache, 2, {3, 4});
  EXPECT_THAT(Missing(&cache, 3, {5, 6}), ElementsAre(5, 6));
  EXPECT_THAT(Missing(&cache, 4, {3, 4, 5, 6}), IsEmpty());
}

TEST(HotRowIndexTest, SlotsOfRowsThatAreTooOldAreTakenBeforeMemoryGrows) {
  HotRowIndex cache(1000000, 1);
  for (uint64_t step = 0; step < 1000; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 100; ++i) keys.push_back(step * 100 + i);
    Missing(&cache, step, keys);
  }
  EXPECT_LE(cache.size(), 1000u);  // 200 rows are young enough
}

TEST(HotRowIndexTest, ManyRowsAreFoundAgainWhileTheIndexGrows) {
  HotRowIndex cache(100000, 10);
  HotRowIndex::Rows found;
  std::vector<uint64_t> keys;
  for (uint64_t step = 0; step < 8; ++step) {
    for (int i = 0; i < 700; ++i) keys.push_back(keys.size() * keys.size());
    cache.Find(Keys(keys), step, step, &found);
    EXPECT_EQ(found.use.misses(), 700u);
    EXPECT_EQ(std::set<uint32_t>(found.slots.begin(), found.slots.end()).size(), keys.size());
  }
  EXPECT_EQ(cache.size(), 5600u);
}

TEST(HotRowIndexTest, BatchOfAsManyKeysAsSlotsFindsRoom) {
  HotRowIndex cache(50, 5);
  for (uint64_t step = 0; step < 40; ++step) {
    std::vector<uint64_t> keys;
    for (uint64_t i = 0; i < 50; ++i) keys.push_back(step * 20 + i);  // 30 of the previous step
    HotRowIndex::Rows found;
    cache.Find(Keys(keys), step, step, &found);
    EXPECT_EQ(std::set<uint32_t>(found.slots.begin(), found.slots.end()).size(), 50u);
    EXPECT_LE(cache.size(), 50u);
    if (step > 0) {
      EXPECT_GE(found.use.hits(), 20u);
    }
  }
}

TEST(HotRowIndexTest, ForgottenRowsArePulledAgain) {
  HotRowIndex cache(10, 100);
  Missing(&cache, 0, {1, 2});
  cache.Forget(1);
  EXPECT_THAT(Missing(&cache, 1, {1, 3}), ElementsAre(1, 3));
  EXPECT_THAT(Missing(&cache, 2, {1, 2, 3}), ElementsAre(2));
}

// Compares random batches in flight, steps, epochs and evictions with a memory indexed by slot and
// a map of when each key was pulled.
class ModelCheck {
 public:
  explicit ModelCheck(uint32_t seed)
      : random_(seed),
        capacity_(8 + random_() % 60),
        max_staleness_(random_() % 12),
        depth_(1 + random_() % 4),
        universe_(1 + random_() % 150),
        cache_(capacity_, max_staleness_),
        memory_(capacity_) {}

  void Run() {
    for (int i = 0; i < 3000; ++i) {
      if (in_flight_.empty() && random_() % 40 == 0) {
        cache_.Forget(steps_done_);
        oldest_ = steps_done_;
      }
      if (in_flight_.size() < depth_ && random_() % 2 == 0) Start();
      if (!in_flight_.empty() && random_() % 2 == 0) Step();
      if (testing::Test::HasFailure()) return;
    }
    EXPECT_GT(steps_done_, 500u);
  }

 private:
  struct Batch {
    KeySet keys;
    HotRowIndex::Rows found;
    uint64_t pulled = 0;
  };
  struct Value {
    uint64_t key = 0, pulled = 0;
  };

  bool Young(uint64_t key, uint64_t step) const {
    const auto at = pulled_.find(key);
    return at != pulled_.end() && at->second >= oldest_ && step - at->second <= max_staleness_;
  }

  void Start() {
    Batch batch;
    std::set<uint64_t> keys;
    const size_t n = random_() % (capacity_ + 1);
    // Small keys are hot.
    for (size_t i = 0; i < n; ++i) keys.insert(random_() % (1 + random_() % universe_));
    batch.keys = {{keys.begin(), keys.end()}, {0, static_cast<uint32_t>(keys.size() / 3)}};
    batch.keys.offsets.push_back(static_cast<uint32_t>(keys.size()));
    batch.pulled = steps_done_;
    const uint64_t step = steps_done_ + in_flight_.size();
    cache_.Find(batch.keys, step, steps_done_, &batch.found);

    std::set<uint64_t> missing(batch.found.missing.keys.begin(), batch.found.missing.keys.end());
    ASSERT_EQ(missing.size(), batch.found.missing.keys.size());
    for (const uint64_t key : keys) {
      if (missing.count(key) == 0) {
        ASSERT_TRUE(Young(key, step)) << key;
      }
      // With room for all keys there is no other reason to pull.
      if (capacity_ >= universe_) {
        ASSERT_EQ(missing.count(key), Young(key, step) ? 0u : 1u);
      }
    }
    for (const uint64_t key : missing) pulled_[key] = steps_done_;
    in_flight_.push_back(std::move(batch));
  }

  void Step() {
    const Batch batch = std::move(in_flight_.front());
    in_flight_.pop_front();
    const HotRowIndex::Rows& found = batch.found;
    for (size_t i = 0; i < found.missing_slots.size(); ++i) {
      ASSERT_LT(found.missing_slots[i], capacity_);
      memory_[found.missing_slots[i]] = {found.missing.keys[i], batch.pulled};
    }
    uint64_t sum = 0, oldest = 0;
    for (size_t i = 0; i < batch.keys.keys.size(); ++i) {
      const Value& value = memory_[found.slots[i]];
      ASSERT_EQ(value.key, batch.keys.keys[i]);
      const uint64_t age = steps_done_ - value.pulled;
      if (value.pulled != batch.pulled) {
        ASSERT_LE(age, max_staleness_);
      }
      sum += age;
      oldest = std::max(oldest, age);
    }
    EXPECT_EQ(found.use.hits() + found.use.misses(), batch.keys.keys.size());
    EXPECT_EQ(found.use.misses(), found.missing.keys.size());
    EXPECT_EQ(found.use.staleness_sum(), sum);
    EXPECT_EQ(found.use.staleness_max(), oldest);
    ++steps_done_;
  }

  std::mt19937 random_;
  const size_t capacity_;
  const uint64_t max_staleness_;
  const size_t depth_;
  const uint64_t universe_;
  HotRowIndex cache_;
  std::vector<Value> memory_;            // by slot
  std::map<uint64_t, uint64_t> pulled_;  // by key: the last pull
  std::deque<Batch> in_flight_;
  uint64_t steps_done_ = 0, oldest_ = 0;
};

TEST(HotRowIndexTest, RandomStreamsSeeOnlyValuesOfTheirKeysWithinTheBound) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    ModelCheck(seed).Run();
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace sluice
