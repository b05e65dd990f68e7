#include "worker/context/job_context.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(StepPatienceTest, IsLongerByTheWaitForAReplacementOnlyIfThereMayBeOne) {
  JobConfig config;
  config.mutable_train()->set_step_timeout_s(7);
  config.mutable_recovery()->set_wait_s(30);
  config.mutable_recovery()->set_max_losses(2);
  EXPECT_EQ(StepPatience(config), absl::Seconds(37));
  EXPECT_NE(StepPatienceOptions(config).find("recovery.wait_s"), std::string::npos);
  config.mutable_recovery()->set_max_losses(0);
  EXPECT_EQ(StepPatience(config), absl::Seconds(7));
  EXPECT_EQ(StepPatienceOptions(config), "train.step_timeout_s");
}

}  // namespace
}  // namespace sluice
