// Lists, opens and checks the CUDA devices that the runtime sees (CUDA_VISIBLE_DEVICES applies).
//
// Errors of all functions; each message says what to do:
// - UNIMPLEMENTED in a build without the toolkit;
// - FAILED_PRECONDITION without a driver, or with a driver that is too old;
// - NOT_FOUND when the device does not exist, naming the devices that do.
//
// Thread safety: free functions, safe from any thread.
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
  size_t free_bytes = 0;  // set by OpenCudaDevice only
  int multiprocessors = 0;
  // "cuda:0: NVIDIA H100, capability 9.0, driver for CUDA 13.0, runtime 13.0, 79 GiB"
  std::string ToString() const;
};

// 13000 -> "13.0".
std::string CudaVersionText(int version);

// Whether this was built with the CUDA toolkit.
bool BuiltWithCuda();
// The error of a build without the toolkit: UNIMPLEMENTED, never OK.
absl::Status NotBuiltWithCuda();
// Returns at least one device. Creates no context, so it holds no memory on any device.
absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices();
// Makes the device current for this thread and creates its context.
absl::StatusOr<CudaDeviceInfo> OpenCudaDevice(int ordinal);
// Checks that the device still answers this process. INTERNAL after some errors, such as an invalid
// address or a hardware fault: every later call fails too, and only a new process helps.
absl::Status CheckCudaDevice(int ordinal);
// Loads cuBLAS, which is not linked. NOT_FOUND names the missing library or function.
absl::Status CheckCudaLibraries();

}  // namespace sluice
