#include "model/net/net_options.h"

#include "gtest/gtest.h"

namespace sluice {
namespace {

TEST(NetOptionsTest, DevicesHaveNames) {
  ComputeDevice device;
  EXPECT_EQ(NameOf(device), "cpu");
  device.kind = ComputeDevice::kCuda;
  device.ordinal = 7;
  EXPECT_EQ(NameOf(device), "cuda:7");
}

TEST(NetOptionsTest, PrecisionsHaveNames) {
  for (const char* name : {"job", "f32", "tf32", "bf16", "fp16"}) {
    const auto precision = ParseMatmulPrecision(name);
    ASSERT_TRUE(precision.ok()) << precision.status();
    EXPECT_STREQ(NameOf(*precision), name);
  }
  EXPECT_EQ(ParseMatmulPrecision("fp8").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
