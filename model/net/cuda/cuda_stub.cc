// Replaces cuda_device.cc in a build without the toolkit: there are no CUDA devices.
#include "model/net/cuda/cuda_device.h"

namespace sluice {

bool BuiltWithCuda() { return false; }
absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices() { return NotBuiltWithCuda(); }
absl::StatusOr<CudaDeviceInfo> OpenCudaDevice(int) { return NotBuiltWithCuda(); }
absl::Status CheckCudaDevice(int) { return NotBuiltWithCuda(); }
absl::Status CheckCudaLibraries() { return NotBuiltWithCuda(); }

}  // namespace sluice
