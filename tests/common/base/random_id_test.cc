#include "common/base/random_id.h"

#include <gtest/gtest.h>

#include <set>

namespace sluice {
namespace {

TEST(RandomIdTest, IdsDifferAndLeaveRoomToCountUp) {
  std::set<uint64_t> seen;
  uint64_t all = 0;
  for (int i = 0; i < 100; ++i) {
    const uint64_t id = RandomId();
    EXPECT_NE(id, 0u);
    EXPECT_EQ(id >> 63, 0u);
    EXPECT_TRUE(seen.insert(id).second);
    all |= id;
  }
  EXPECT_EQ(all, ~uint64_t{0} >> 1);  // every bit but the highest is drawn
}

}  // namespace
}  // namespace sluice
