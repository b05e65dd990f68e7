#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "model/net/cuda/cuda_device.h"

// The parts of cuda_device.h that need no toolkit, and so are in every build.
namespace sluice {

absl::Status NotBuiltWithCuda() {
  return absl::UnimplementedError(
      "this program was built without CUDA; build it where the CUDA toolkit is installed "
      "(-DSLUICE_WITH_CUDA=ON says what is missing)");
}

std::string CudaDeviceInfo::ToString() const {
  return absl::StrFormat("cuda:%d: %s, capability %d.%d, driver for CUDA %s, runtime %s, %.1f GiB",
                         ordinal, name, major, minor, CudaVersionText(driver),
                         CudaVersionText(runtime), total_bytes / 0x1p30);
}

std::string CudaVersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace sluice
