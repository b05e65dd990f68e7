#include "model/wide_deep/cuda/loss_scaler.h"

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

TEST(LossScalerTest, OverflowRestartsTheCountOfGoodSteps) {
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

TEST(LossScalerTest, ContinuesFromItsSavedState) {
  LossScaler whole;
  Good(&whole, 1500);
  for (int i = 0; i < 3; ++i) whole.Update(true);
  LossScaler resumed;
  ASSERT_TRUE(resumed.Restore(whole.Save()).ok());
  const auto expect_equal = [&] {
    EXPECT_EQ(resumed.scale(), whole.scale());
    EXPECT_EQ(resumed.skipped(), whole.skipped());
    EXPECT_EQ(resumed.Save(), whole.Save());
  };
  expect_equal();
  whole.Update(true);  // the fourth overflow in a row: the scale halves in both
  resumed.Update(true);
  EXPECT_EQ(whole.scale(), 64);
  expect_equal();
  Good(&whole, 999);
  ASSERT_TRUE(resumed.Restore(whole.Save()).ok());
  Good(&whole, 1);
  Good(&resumed, 1);
  EXPECT_EQ(whole.scale(), 128) << "the count of good steps continues";
  expect_equal();
}

TEST(LossScalerTest, RefusesMalformedStatesWithoutAnyChange) {
  LossScaler scaler;
  scaler.Update(true);
  const std::string before = scaler.Save();
  for (const char* bad : {"", "loss_scale", "loss_scale 128 0 0", "loss_scale 100 0 0 0",
                          "loss_scale 0 0 0 0", "loss_scale 33554432 0 0 0",
                          "loss_scale 128 1000 0 0", "loss_scale 128 0 2 0", "loss_scale -1 0 0 0",
                          "loss_scale 128 0 0 x", "loss_scale 128 0 0 0 0", "scale 128 0 0 0"}) {
    EXPECT_EQ(scaler.Restore(bad).code(), absl::StatusCode::kInvalidArgument) << bad;
    EXPECT_EQ(scaler.Save(), before);
  }
  LossScaler highest;
  EXPECT_TRUE(highest.Restore("loss_scale 16777216 999 1 5").ok());
}

}  // namespace
}  // namespace sluice
