#include "common/table/row_days.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

RowDays Days() {
  RowDays days;
  days.Begin(100, 50);
  days.Begin(101, 80);
  days.Begin(105, 80 + 40);
  return days;
}

TEST(RowDaysTest, AStepHasTheDayThatBeganLast) {
  const RowDays days = Days();
  EXPECT_EQ(days.today(), 105);
  EXPECT_EQ(days.DayOf(50), 100);
  EXPECT_EQ(days.DayOf(79), 100);
  EXPECT_EQ(days.DayOf(80), 101);
  EXPECT_EQ(days.DayOf(119), 101);
  EXPECT_EQ(days.DayOf(120), 105);
  EXPECT_EQ(days.DayOf(1'000'000), 105);
}

TEST(RowDaysTest, StepsBeforeTheFirstDayCountAsOfIt) {
  const RowDays days = Days();
  EXPECT_EQ(days.DayOf(0), 100);
  EXPECT_EQ(days.FirstStepSince(99), 0u);
  EXPECT_EQ(days.FirstStepSince(100), 0u);
  EXPECT_EQ(days.FirstStepSince(101), 80u);
  EXPECT_EQ(days.FirstStepSince(102), 120u);
  EXPECT_EQ(days.FirstStepSince(105), 120u);
  EXPECT_EQ(days.FirstStepSince(106), UINT64_MAX);
}

TEST(RowDaysTest, OnlyALaterDayBegins) {
  RowDays days = Days();
  days.Begin(105, 200);
  days.Begin(104, 300);
  EXPECT_EQ(days.DayOf(400), 105);
  // A day without a step has no rows.
  days.Begin(106, 500);
  days.Begin(107, 500);
  EXPECT_EQ(days.DayOf(499), 105);
  EXPECT_EQ(days.DayOf(500), 107);
  EXPECT_EQ(days.FirstStepSince(106), 500u);
}

TEST(RowDaysTest, PruningMakesNoStepYounger) {
  RowDays days = Days();
  days.Prune(4);  // 101 is still asked for
  EXPECT_EQ(days.DayOf(60), 100);
  days.Prune(3);
  // 101 stands for all that is older than 102.
  EXPECT_EQ(days.DayOf(60), 101);
  EXPECT_EQ(days.FirstStepSince(102), 120u);
  days.Prune(0);
  EXPECT_EQ(days.FirstStepSince(105), 120u);
}

TEST(RowDaysTest, AreRestoredFromTheFacts) {
  ShardFacts facts;
  Days().Write(&facts);
  ASSERT_EQ(facts.days_size(), 3);
  RowDays days;
  days.Begin(3, 0);
  days.Restore(facts);
  ShardFacts again;
  days.Write(&again);
  EXPECT_EQ(again.SerializeAsString(), facts.SerializeAsString());
}

TEST(RowDaysTest, AListThatIsNotAscendingOrTooLongIsCutToOneThatIs) {
  ShardFacts facts;
  for (int i = 0; i < 2 * static_cast<int>(RowDays::kMost); ++i) {
    DayStart* const day = facts.add_days();
    day->set_day(i % 2 == 0 ? i : -i);
    day->set_schedule_step(static_cast<uint64_t>(i));
  }
  RowDays days;
  days.Restore(facts);
  ShardFacts again;
  days.Write(&again);
  EXPECT_LE(again.days_size(), static_cast<int>(RowDays::kMost));
  for (int i = 1; i < again.days_size(); ++i) {
    EXPECT_LT(again.days(i - 1).day(), again.days(i).day());
    EXPECT_LE(again.days(i - 1).schedule_step(), again.days(i).schedule_step());
  }
}

}  // namespace
}  // namespace sluice
