#include "common/daemon/hot_row_use.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

HotRowUse Use(uint64_t hits, uint64_t misses, uint64_t sum, uint64_t max, uint64_t whole) {
  HotRowUse use;
  use.set_hits(hits);
  use.set_misses(misses);
  use.set_staleness_sum(sum);
  use.set_staleness_max(max);
  use.set_whole_batches(whole);
  return use;
}

TEST(HotRowUseTest, SumsKeepTheLargestStaleness) {
  HotRowUse sum;
  Add(Use(3, 1, 10, 5, 0), &sum);
  Add(Use(3, 1, 2, 2, 7), &sum);
  EXPECT_EQ(sum.SerializeAsString(), Use(6, 2, 12, 5, 7).SerializeAsString());
  EXPECT_EQ(HitShare(sum), 0.75);
  EXPECT_EQ(MeanStaleness(sum), 1.5);
  EXPECT_EQ(Describe(sum),
            "hot rows 75.0% used again, 1.5 steps old (at most 5), 7 batches pulled whole");
}

TEST(HotRowUseTest, NoUseHasNoShare) {
  EXPECT_EQ(HitShare(HotRowUse()), 0);
  EXPECT_EQ(MeanStaleness(HotRowUse()), 0);
}

}  // namespace
}  // namespace sluice
