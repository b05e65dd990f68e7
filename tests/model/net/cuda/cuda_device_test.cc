// What a machine without toolkit, driver or device is told, and what one with them shows.
#include "model/net/cuda/cuda_device.h"

#include "gmock/gmock.h"
#include "tests/model/net/cuda/gpu_for_test.h"

namespace sluice {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

TEST(CudaDeviceTest, DescribesItselfInALine) {
  CudaDeviceInfo info;
  info.ordinal = 1;
  info.name = "NVIDIA H100";
  info.major = 9;
  info.driver = 13000;
  info.runtime = 12080;
  info.total_bytes = size_t{80} << 30;
  EXPECT_EQ(info.ToString(),
            "cuda:1: NVIDIA H100, capability 9.0, driver for CUDA 13.0, runtime 12.8, 80.0 GiB");
}

// Listing and opening fail alike and say what to do.
TEST(CudaDeviceTest, WithoutADeviceEveryErrorNamesTheCauseAndTheFix) {
  const absl::Status listed = ListCudaDevices().status();
  if (listed.ok()) return;  // what follows is of other machines; a skip would say "no GPU"
  const std::string message(listed.message());
  if (BuiltWithCuda()) {
    EXPECT_THAT(listed.code(),
                AnyOf(absl::StatusCode::kFailedPrecondition, absl::StatusCode::kNotFound));
    EXPECT_THAT(message, AnyOf(HasSubstr("no NVIDIA driver"), HasSubstr("update the driver"),
                               HasSubstr("shows no CUDA device")));
  } else {
    EXPECT_EQ(listed.code(), absl::StatusCode::kUnimplemented);
    EXPECT_THAT(message, HasSubstr("built without CUDA"));
  }
  // That the CPU computes too is for the caller to say, who knows whether it does already.
  EXPECT_THAT(message, Not(HasSubstr("CPU")));
  EXPECT_EQ(OpenCudaDevice(0).status(), listed);
}

TEST(CudaDeviceTest, OpensTheFirstAndRefusesOneThatIsNotThere) {
  SLUICE_NEEDS_GPU();
  const auto devices = ListCudaDevices();
  const auto device = OpenCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_GT(device->free_bytes, 0u);
  // As nvidia-smi -L prints it: what workers know a device by.
  EXPECT_THAT(device->uuid, MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(device->uuid.size(), 40u);
  EXPECT_TRUE(CheckCudaLibraries().ok()) << CheckCudaLibraries();
  const absl::Status status = OpenCudaDevice(devices->size()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0 ("));
}

}  // namespace
}  // namespace sluice
