#include "common/base/cpu_pin.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace sluice {
namespace {

using ::testing::ElementsAre;

cpu_set_t Affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  EXPECT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  return set;
}

TEST(CpuPinTest, ChooseCpusWrapsAroundTheAllowedCpus) {
  EXPECT_THAT(ChooseCpus({0, 1, 2, 3}, 0, 2), ElementsAre(0, 1));
  EXPECT_THAT(ChooseCpus({0, 1, 2, 3}, 2, 2), ElementsAre(2, 3));
  EXPECT_THAT(ChooseCpus({4, 7}, 3, 1), ElementsAre(7));
  EXPECT_THAT(ChooseCpus({4, 7, 9}, 2, 2), ElementsAre(9, 4));
  EXPECT_THAT(ChooseCpus({4, 7}, 1, 8), ElementsAre(7, 4));
}

TEST(CpuPinTest, PinsUntilItIsDestroyed) {
  const cpu_set_t before = Affinity();
  {
    const CpuPin pin(0, 1);
    ASSERT_EQ(pin.cpus().size(), 1);
    const cpu_set_t now = Affinity();
    EXPECT_EQ(CPU_COUNT(&now), 1);
    EXPECT_TRUE(CPU_ISSET(pin.cpus()[0], &now));
  }
  const cpu_set_t after = Affinity();
  EXPECT_TRUE(CPU_EQUAL(&before, &after));
}

}  // namespace
}  // namespace sluice
