#include "model/net/cuda/loss_scaler.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

void Good(LossScaler* scaler, int steps) {
  for (int i = 0; i < steps; ++i) scaler->Update(false);
}

TEST(LossScalerTest, DoublesAfterAThousandGoodSteps) {
  LossScaler scaler;
  EXPECT_EQ(scaler.scale(), 128);
  Good(&scaler, 999);
  EXPECT_EQ(scaler.scale(), 128);
  Good(&scaler, 1);
  EXPECT_EQ(scaler.scale(), 256);
  Good(&scaler, 1000);
  EXPECT_EQ(scaler.scale(), 512);
}

TEST(LossScalerTest, HalvesAfterTwoOverflowsWithoutAGoodStepBetween) {
  LossScaler scaler;
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 128);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 64);
  scaler.Update(true);
  scaler.Update(false);
  scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 64);
  EXPECT_EQ(scaler.skipped(), 4u);
}

TEST(LossScalerTest, AnOverflowStartsTheCountOfGoodStepsAnew) {
  LossScaler scaler;
  Good(&scaler, 999);
  scaler.Update(true);
  Good(&scaler, 999);
  EXPECT_EQ(scaler.scale(), 128);
  Good(&scaler, 1);
  EXPECT_EQ(scaler.scale(), 256);
}

TEST(LossScalerTest, StaysWithinItsBoundsAndGivesUpAtTheLowest) {
  LossScaler scaler;
  for (int i = 0; i < 14; ++i) scaler.Update(true);
  EXPECT_EQ(scaler.scale(), 1);
  EXPECT_FALSE(scaler.hopeless());
  scaler.Update(true);
  EXPECT_FALSE(scaler.hopeless());
  scaler.Update(true);
  EXPECT_TRUE(scaler.hopeless());
  LossScaler rising;
  Good(&rising, 1000 * 40);
  EXPECT_EQ(rising.scale(), LossScaler::kHighest);
}

}  // namespace
}  // namespace sluice
