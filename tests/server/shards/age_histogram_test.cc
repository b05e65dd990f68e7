#include "server/shards/age_histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace sluice {
namespace {

// Beside a plain list of rows.
TEST(AgeHistogramTest, CountsWhatIsOlderThanItsInterval) {
  for (const uint64_t after : {1u, 3u, 900u, 5000u, 1u << 20}) {
    SCOPED_TRACE(after);
    std::mt19937_64 random(after);
    AgeHistogram ages(after);
    EXPECT_EQ(ages.width() == 1, after < 1000);
    EXPECT_LE(ages.width(), 1 + after / 500);
    std::vector<uint64_t> rows;
    uint64_t now = 0, at_times = 0;
    for (int round = 0; round < 3000; ++round) {
      now += random() % 5 == 0 ? random() % (after + 2) : random() % 3;
      const uint64_t live_from = now > after ? now - after : 0;
      ages.Advance(live_from);
      for (size_t n = random() % 5; n > 0; --n) {
        rows.push_back(now);
        ages.Add(now);
      }
      for (size_t n = std::min<size_t>(rows.size(), random() % 8); n > 0; --n) {
        uint64_t& row = rows[random() % rows.size()];
        if (random() % 2 == 0) {
          ages.Move(row, now);
          row = now;
        } else {
          ages.Remove(row);
          row = rows.back();
          rows.pop_back();
        }
      }
      const auto older = [&](uint64_t step) {
        return static_cast<uint64_t>(
            std::count_if(rows.begin(), rows.end(), [&](uint64_t row) { return row < step; }));
      };
      ASSERT_EQ(ages.expired(), older(live_from / ages.width() * ages.width()))
          << "round " << round;
      at_times += ages.expired() > 0;
      if (random() % 500 == 0) {
        ages.Clear(live_from);
        for (const uint64_t row : rows) ages.Add(row);
        ASSERT_EQ(ages.expired(), older(live_from / ages.width() * ages.width()));
      }
    }
    EXPECT_GT(at_times, 100u);
  }
}

TEST(AgeHistogramTest, WithDaysAloneTheBorderStays) {
  AgeHistogram ages(0);
  ages.Clear(5000);
  for (const uint64_t step : {0u, 4999u, 5000u, 5001u, 9000u}) ages.Add(step);
  EXPECT_EQ(ages.expired(), 2u);
  ages.Move(4999, 9001);
  ages.Remove(9000);
  EXPECT_EQ(ages.expired(), 1u);
}

// Files may hold anything.
TEST(AgeHistogramTest, RowsOfStepsToComeMakeNoCountWrapAround) {
  AgeHistogram ages(10);
  ages.Clear(0);
  ages.Add(100);
  ages.Advance(95);
  ages.Remove(100);
  ages.Remove(100);
  ages.Advance(1000);
  EXPECT_EQ(ages.expired(), 0u);
}

}  // namespace
}  // namespace sluice
