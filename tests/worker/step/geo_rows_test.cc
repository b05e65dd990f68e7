#include "worker/step/geo_rows.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <vector>

#include "tests/worker/fakes.h"
#include "worker/step/host_geo_optimizer.h"

namespace sluice {
namespace {

using ::testing::ElementsAre;
using ::testing::Eq;
using ::testing::IsEmpty;
using ::testing::Pair;

// The rows of the second of two sparse tables, of dim 3.
class GeoRowsTest : public ::testing::Test {
 protected:
  void Find(const std::vector<uint64_t>& keys) {
    std::vector<uint32_t> index(keys.size());
    dedup_.Run(layout_, keys.data(), keys.size(), &keys_, index.data());
    rows_.Find(keys_, &found_);
  }
  // A step that pulls what is missing, all values of a row being its key, and updates all rows.
  GeoUpdate::Rows Step(const std::vector<uint64_t>& keys) {
    Find(keys);
    std::vector<float> values;
    for (const uint64_t key : found_.missing.keys)
      values.insert(values.end(), kWideDim, static_cast<float>(key));
    EXPECT_TRUE(rows_.Fill(&found_, values.data()).ok());
    rows_.Use(found_);
    return rows_.CountUpdate(found_, step_++);
  }
  std::set<uint64_t> Missing(const std::vector<uint64_t>& keys) {
    Find(keys);
    return {found_.missing.keys.begin(), found_.missing.keys.end()};
  }
  // The values of the rows of the last step, by key.
  std::map<uint64_t, std::vector<float>> Values() const {
    std::vector<float> values(found_.slots.size() * kWideDim);
    values_.GatherRows(1, {found_.slots.data(), found_.slots.size()}, values.data());
    std::map<uint64_t, std::vector<float>> by_key;
    for (size_t i = 0; i < keys_.keys.size(); ++i)
      by_key[keys_.keys[i]].assign(&values[i * kWideDim], &values[i * kWideDim] + kWideDim);
    return by_key;
  }

  const TableLayouts layouts_ = FakeClient(TwoTablesModel(), 1.0f).tables();
  const TableLayout& layout_ = *layouts_[2];
  HostGeoOptimizer values_{{}, {layouts_[0].get(), layouts_[2].get()}};
  GeoRows rows_{/*table=*/1, &layout_, /*max_rows=*/2, &values_};
  KeyDeduplicator dedup_;
  KeySet keys_, sent_keys_;
  GeoRows::Found found_;
  uint64_t step_ = 0;
};

TEST_F(GeoRowsTest, PulledRowsAreThoseOfItsTable) {
  Step({4, 2, 9});
  EXPECT_THAT(Values(), ElementsAre(Pair(2, ElementsAre(2, 2, 2)), Pair(4, ElementsAre(4, 4, 4)),
                                    Pair(9, ElementsAre(9, 9, 9))));
  for (const uint32_t slot : found_.slots) EXPECT_LT(slot, 3u);
  EXPECT_EQ(rows_.KeyOf(found_.slots[0]), keys_.keys[0]);
}

TEST_F(GeoRowsTest, AnUpdateCountsThoseOfEachRow) {
  Step({1});
  Step({1, 2});
  const GeoUpdate::Rows update = Step({1});
  ASSERT_EQ(update.n, 1u);
  EXPECT_EQ(update.slots[0], found_.slots[0]);
  EXPECT_EQ(update.counts[0], 3u);
}

TEST_F(GeoRowsTest, AnExchangeHasEachUpdatedRowOnceInTheOrderOfItsKeys) {
  Step({5, 1});
  Step({1, 8, 3});
  rows_.BeginExchange(&sent_keys_);
  EXPECT_THAT(sent_keys_.keys, testing::UnorderedElementsAre(1, 3, 5, 8));
  ASSERT_EQ(rows_.sent().n, 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(rows_.KeyOf(rows_.sent().slots[i]), sent_keys_.keys[i]);
  // Moves made since are those of the next exchange.
  Step({8});
  rows_.EndExchange();
  rows_.BeginExchange(&sent_keys_);
  EXPECT_THAT(sent_keys_.keys, ElementsAre(8));
}

TEST_F(GeoRowsTest, TheLeastRecentlyUsedRowsLeaveAndTheirSlotsAreUsedAgain) {
  Step({1});
  Step({2});
  Step({3});
  Step({1});
  rows_.BeginExchange(&sent_keys_);
  rows_.EndExchange();
  EXPECT_EQ(rows_.size(), 2u);
  EXPECT_THAT(Missing({1, 2, 3}), ElementsAre(2));
  Step({7});
  EXPECT_THAT(found_.slots, ElementsAre(1)) << "the slot of row 2";
  EXPECT_EQ(rows_.KeyOf(1), 7u);
}

TEST_F(GeoRowsTest, ARowWithAnUnsentMoveStaysBeyondTheLimit) {
  Step({1, 2, 3});
  rows_.BeginExchange(&sent_keys_);
  Step({1, 2, 3});
  rows_.EndExchange();
  EXPECT_EQ(rows_.size(), 3u);
  EXPECT_THAT(Missing({1, 2, 3}), IsEmpty());
}

TEST_F(GeoRowsTest, RowsNotInAnExchangeAreStaleAfterIt) {
  Step({1, 2});
  rows_.BeginExchange(&sent_keys_);
  rows_.EndExchange();
  EXPECT_THAT(Missing({1, 2}), IsEmpty());
  rows_.BeginExchange(&sent_keys_);
  rows_.EndExchange();
  EXPECT_THAT(Missing({1, 2}), ElementsAre(1, 2));
  EXPECT_THAT(rows_.size(), Eq(2u)) << "they keep their slots";
}

}  // namespace
}  // namespace sluice
