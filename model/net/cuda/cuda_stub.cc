// The CUDA backend of a build without the toolkit.
#include "model/net/cuda/cuda_device.h"
#include "model/net/cuda/cuda_net.h"

namespace sluice {
namespace {

absl::Status NotBuilt() {
  return absl::UnimplementedError(
      "this program was built without CUDA; configure it where the CUDA toolkit is "
      "(-DSLUICE_WITH_CUDA=ON says what is missing)");
}

}  // namespace

bool BuiltWithCuda() { return false; }
absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices() { return NotBuilt(); }
absl::StatusOr<CudaDeviceInfo> OpenCudaDevice(int) { return NotBuilt(); }
absl::Status CheckCudaDevice(int) { return NotBuilt(); }
absl::Status CheckCudaLibraries() { return NotBuilt(); }
absl::StatusOr<std::unique_ptr<DenseNet>> CreateCudaNet(const WideDeepShape&, const NetOptions&) {
  return NotBuilt();
}

}  // namespace sluice
