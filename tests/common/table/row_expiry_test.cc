#include "common/table/row_expiry.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

ExpireConfig Expire(uint64_t steps, uint32_t days, uint32_t min_count = 0) {
  ExpireConfig config;
  config.set_after_steps(steps);
  config.set_after_days(days);
  config.set_min_count(min_count);
  return config;
}

TEST(RowExpiryTest, WithoutOptionsNothingExpires) {
  const RowExpiry expiry{ExpireConfig()};
  RowDays days;
  days.Begin(100, 5);
  EXPECT_FALSE(expiry.on());
  EXPECT_EQ(expiry.LiveFrom(UINT64_MAX, days), 0u);
  EXPECT_FALSE(expiry.Expired(/*last_seen=*/0, /*count=*/1, /*live_from=*/0));
}

TEST(RowExpiryTest, ARowExpiresWhenItsAgePassesTheLimit) {
  const RowExpiry expiry(Expire(10, 0));
  const RowDays none;
  const auto expired = [&](uint64_t last_seen, uint64_t step) {
    return expiry.Expired(last_seen, /*count=*/1, expiry.LiveFrom(step, none));
  };
  EXPECT_FALSE(expired(0, 10));
  EXPECT_TRUE(expired(0, 11));
  EXPECT_FALSE(expired(5, 15));
  EXPECT_TRUE(expired(5, 16));
  EXPECT_FALSE(expired(20, 3));  // no row is of later steps, but nothing may wrap around
  EXPECT_EQ(expiry.EndOf(5, none), 16u);
  EXPECT_EQ(expiry.EndOf(UINT64_MAX, none), UINT64_MAX);
}

TEST(RowExpiryTest, ACountKeepsARow) {
  const RowExpiry expiry(Expire(10, 0, 3));
  EXPECT_TRUE(expiry.Expired(0, /*count=*/2, 1));
  EXPECT_FALSE(expiry.Expired(0, /*count=*/3, 1));
}

TEST(RowExpiryTest, DaysAreThoseOfTheLastUpdate) {
  const RowExpiry expiry(Expire(0, 2));
  RowDays days;
  EXPECT_EQ(expiry.LiveFrom(1000, days), 0u);
  days.Begin(100, 50);
  EXPECT_EQ(expiry.LiveFrom(60, days), 0u);
  days.Begin(102, 80);
  EXPECT_EQ(expiry.LiveFrom(90, days), 0u);
  days.Begin(103, 120);
  // Also rows from before the first day, which count as of that day.
  EXPECT_EQ(expiry.LiveFrom(120, days), 80u);
  EXPECT_EQ(expiry.EndOf(10, days), 120u);
  EXPECT_EQ(expiry.EndOf(79, days), 120u);
  EXPECT_EQ(expiry.EndOf(80, days), UINT64_MAX);
  days.Begin(110, 150);
  EXPECT_EQ(expiry.LiveFrom(150, days), 150u);
}

TEST(RowExpiryTest, TheEarlierOfTwoLimitsEndsARow) {
  const RowExpiry expiry(Expire(100, 1));
  RowDays days;
  days.Begin(100, 0);
  days.Begin(101, 40);
  days.Begin(102, 60);
  EXPECT_EQ(expiry.LiveFrom(70, days), 40u);
  EXPECT_EQ(expiry.LiveFrom(160, days), 60u);
  EXPECT_EQ(expiry.EndOf(10, days), 60u);
  EXPECT_EQ(expiry.EndOf(50, days), 151u);
}

}  // namespace
}  // namespace sluice
