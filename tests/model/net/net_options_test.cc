#include "model/net/net_options.h"

#include "gmock/gmock.h"

namespace sluice {
namespace {

using ::testing::HasSubstr;

TEST(NetOptionsTest, DevicesAndTheirNames) {
  for (const char* name : {"cpu", "cuda:0", "cuda:7"}) {
    const auto device = ParseComputeDevice(name);
    ASSERT_TRUE(device.ok()) << device.status();
    EXPECT_EQ(NameOf(*device), name);
  }
  for (const char* name : {"", "gpu", "cuda", "cuda:", "cuda:-1", "cuda:x", "CPU"}) {
    EXPECT_THAT(std::string(ParseComputeDevice(name).status().message()),
                HasSubstr("use cpu or cuda:N"))
        << name;
  }
}

TEST(NetOptionsTest, PrecisionsAndTheirNames) {
  for (const char* name : {"job", "f32", "tf32", "bf16", "fp16"}) {
    const auto precision = ParseMatmulPrecision(name);
    ASSERT_TRUE(precision.ok()) << precision.status();
    EXPECT_STREQ(NameOf(*precision), name);
  }
  EXPECT_EQ(ParseMatmulPrecision("fp8").status().code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace sluice
