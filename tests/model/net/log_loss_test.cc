#include "model/net/log_loss.h"

#include <cmath>

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(LogLossTest, SigmoidAgreesWithItsFormula) {
  for (double z = -20; z <= 20; z += 0.37) {
    const float logit = static_cast<float>(z);
    const double expected = 1 / (1 + std::exp(-static_cast<double>(logit)));
    EXPECT_LE(std::abs(Sigmoid(logit) - expected), 1e-7 * expected);
  }
  EXPECT_EQ(Sigmoid(0), 0.5f);
}

TEST(LogLossTest, ExtremeLogitsStayFinite) {
  EXPECT_EQ(Sigmoid(1000), 1.0f);
  EXPECT_EQ(Sigmoid(-1000), 0.0f);
  EXPECT_EQ(LogLoss(1000, 1), 0.0);
  EXPECT_EQ(LogLoss(1000, 0), 1000.0);
  EXPECT_EQ(LogLoss(-1000, 1), 1000.0);
  EXPECT_TRUE(std::isnan(Sigmoid(std::nanf(""))));
  EXPECT_TRUE(std::isnan(LogLoss(std::nanf(""), 1)));
}

TEST(LogLossTest, LogLossAgreesWithItsFormula) {
  for (double z = -15; z <= 15; z += 0.31) {
    const float logit = static_cast<float>(z);
    const double p = 1 / (1 + std::exp(-static_cast<double>(logit)));
    EXPECT_NEAR(LogLoss(logit, 1), -std::log(p), 1e-9);
    EXPECT_NEAR(LogLoss(logit, 0), -std::log1p(-p), 1e-9);
  }
}

TEST(LogLossTest, DerivativeOfLogLossIsSigmoidMinusLabel) {
  for (float label : {0.0f, 1.0f}) {
    for (float z : {-3.0f, -0.5f, 0.25f, 4.0f}) {
      const double slope =
          (LogLoss(z + 0.0078125f, label) - LogLoss(z - 0.0078125f, label)) / 0.015625;
      EXPECT_NEAR(slope, Sigmoid(z) - label, 1e-5);
    }
  }
}

}  // namespace
}  // namespace sluice
