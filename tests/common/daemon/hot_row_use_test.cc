#include "common/daemon/hot_row_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

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
  EXPECT_THAT(Describe(sum), AllOf(HasSubstr("75.0%"), HasSubstr("1.5 steps"),
                                   HasSubstr("at most 5"), HasSubstr("7 batches")));
}

TEST(HotRowUseTest, NoUseHasNoShare) {
  EXPECT_EQ(HitShare(HotRowUse()), 0);
  EXPECT_EQ(MeanStaleness(HotRowUse()), 0);
}

}  // namespace
}  // namespace sluice
