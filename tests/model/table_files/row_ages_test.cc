#include "model/table_files/row_ages.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

ShardFacts FactsAt(uint64_t steps, std::initializer_list<std::pair<int, uint64_t>> days) {
  ShardFacts facts;
  facts.set_schedule_steps(steps);
  for (const auto& [day, step] : days) {
    DayStart* const start = facts.add_days();
    start->set_day(day);
    start->set_schedule_step(step);
  }
  return facts;
}

TEST(RowAgesTest, ARowIsGoneOnceItsAgeIsAboveTheLimit) {
  ExpireConfig expire;
  expire.set_after_steps(10);
  const RowAges ages(expire, FactsAt(100, {}));
  EXPECT_FALSE(ages.has_days());
  EXPECT_EQ(ages.Steps(90), 10u);
  EXPECT_FALSE(ages.Expired(90, 1));
  EXPECT_TRUE(ages.Expired(89, 1));
  // The schedule of a row may lead in async.
  EXPECT_EQ(ages.Steps(101), 0u);
  EXPECT_FALSE(ages.Expired(101, 1));
}

TEST(RowAgesTest, DaysAreLookedUpByTheStepOfTheLastUpdate) {
  ExpireConfig expire;
  expire.set_after_days(3);
  const RowAges ages(expire, FactsAt(100, {{10, 20}, {11, 40}, {15, 60}}));
  EXPECT_EQ(ages.Days(100), 0u);
  EXPECT_EQ(ages.Days(60), 0u);
  EXPECT_EQ(ages.Days(59), 4u);
  EXPECT_EQ(ages.Days(39), 5u);
  // Rows from before the first day count as seen on it.
  EXPECT_EQ(ages.Days(0), 5u);
  EXPECT_TRUE(ages.Expired(59, 1));
  EXPECT_FALSE(ages.Expired(60, 1));
  EXPECT_FALSE(RowAges(expire, FactsAt(100, {})).Expired(0, 1));
}

TEST(RowAgesTest, RowsWithManyUpdatesStayForEver) {
  ExpireConfig expire;
  expire.set_after_steps(10);
  expire.set_min_count(5);
  const RowAges ages(expire, FactsAt(100, {}));
  EXPECT_TRUE(ages.Expired(0, 4));
  EXPECT_FALSE(ages.Expired(0, 5));
  // Without a limit of age nothing expires.
  EXPECT_FALSE(RowAges({}, FactsAt(100, {})).Expired(0, 1));
}

}  // namespace
}  // namespace sluice
