// The CUDA devices of a build without the toolkit: none.
#include "model/net/cuda/cuda_device.h"

namespace sluice {

bool BuiltWithCuda() { return false; }
absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices() { return NotBuiltWithCuda(); }
absl::StatusOr<CudaDeviceInfo> OpenCudaDevice(int) { return NotBuiltWithCuda(); }
absl::Status CheckCudaDevice(int) { return NotBuiltWithCuda(); }
absl::Status CheckCudaLibraries() { return NotBuiltWithCuda(); }

}  // namespace sluice
