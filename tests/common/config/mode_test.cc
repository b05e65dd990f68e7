#include "common/config/mode.h"

#include <gtest/gtest.h>

namespace sluice {
namespace {

TEST(ModeTest, ModesFollowTheTwoSwitches) {
  StrategyConfig strategy;
  EXPECT_EQ(ModeOf(strategy), Mode::kAsync);
  strategy.mutable_a_sync_configs()->set_k_steps(5);
  EXPECT_EQ(ModeOf(strategy), Mode::kGeo);
  strategy.set_a_sync(false);
  EXPECT_EQ(ModeOf(strategy), Mode::kSync);
  EXPECT_STREQ(ModeName(Mode::kGeo), "geo");
}

}  // namespace
}  // namespace sluice
