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
  EXPECT_STREQ(NameOf(MatmulPrecision::kJob), "job");
  EXPECT_STREQ(NameOf(MatmulPrecision::kF32), "f32");
  EXPECT_STREQ(NameOf(MatmulPrecision::kTf32), "tf32");
  EXPECT_STREQ(NameOf(MatmulPrecision::kBf16), "bf16");
  EXPECT_STREQ(NameOf(MatmulPrecision::kFp16), "fp16");
}

}  // namespace
}  // namespace sluice
