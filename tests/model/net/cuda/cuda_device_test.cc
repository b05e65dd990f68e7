// Checks the errors on a machine without toolkit, driver or device, and the devices of a machine
// with them.
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

// Listing and opening fail with the same error, which says what to do.
TEST(CudaDeviceTest, WithoutADeviceEveryErrorNamesTheCauseAndTheFix) {
  const absl::Status listed = ListCudaDevices().status();
  if (listed.ok()) return;  // the rest needs a machine without a device; a skip would say "no GPU"
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
  // Only the caller knows whether the CPU is an alternative, so the message must not offer it.
  EXPECT_THAT(message, Not(HasSubstr("CPU")));
  EXPECT_EQ(OpenCudaDevice(0).status(), listed);
}

TEST(CudaDeviceTest, OpensTheFirstDeviceAndRefusesAMissingOne) {
  SLUICE_NEEDS_GPU();
  const auto devices = ListCudaDevices();
  const auto device = OpenCudaDevice(0);
  ASSERT_TRUE(device.ok()) << device.status();
  EXPECT_GT(device->free_bytes, 0u);
  // The UUID is as nvidia-smi -L prints it; workers identify a device by it.
  EXPECT_THAT(device->uuid, MatchesRegex("GPU-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"));
  EXPECT_EQ(device->uuid.size(), 40u);
  EXPECT_TRUE(CheckCudaLibraries().ok()) << CheckCudaLibraries();
  const absl::Status status = OpenCudaDevice(devices->size()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cuda:0 ("));
}

}  // namespace
}  // namespace sluice
