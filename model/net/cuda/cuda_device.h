// The CUDA devices of this machine, as the runtime sees them (CUDA_VISIBLE_DEVICES applies).
//
// All fail with: UNIMPLEMENTED in a build without the toolkit; FAILED_PRECONDITION without a driver
// or with one that is too old; NOT_FOUND when the device is not there, naming those that are. Each
// message says what to do. Thread safety: safe.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

struct CudaDeviceInfo {
  int ordinal = 0;
  std::string name;
  std::string uuid;             // "GPU-...", as nvidia-smi -L prints it
  int major = 0, minor = 0;     // compute capability
  int driver = 0, runtime = 0;  // CUDA versions, e.g. 13000
  size_t total_bytes = 0;
  size_t free_bytes = 0;  // only of OpenCudaDevice
  int multiprocessors = 0;
  // "cuda:0: NVIDIA H100, capability 9.0, driver for CUDA 13.0, runtime 13.0, 79 GiB"
  std::string ToString() const;
};

// 13000 -> "13.0".
std::string CudaVersionText(int version);

// The toolkit was there when this was built.
bool BuiltWithCuda();
// Why a build without the toolkit cannot do what was asked. UNIMPLEMENTED, never OK.
absl::Status NotBuiltWithCuda();
// At least one. Makes no context: it does not hold memory on any device.
absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices();
// Makes the device current for this thread; its context is made here.
absl::StatusOr<CudaDeviceInfo> OpenCudaDevice(int ordinal);
// Whether the device still answers this process. After some errors (an address that is not there, a
// fault of the hardware) every call fails from then on, and only a new process helps: INTERNAL.
absl::Status CheckCudaDevice(int ordinal);
// Loads what is not linked, cuBLAS; NOT_FOUND names what is missing.
absl::Status CheckCudaLibraries();

}  // namespace sluice
