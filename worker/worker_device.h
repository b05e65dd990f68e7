// The device that a worker computes on: chosen at its start, its own until it ends.
//
// Thread safety: at the start, on main's thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/device_request.h"
#include "model/net/cuda/cuda_device.h"
#include "model/net/net_options.h"
#include "worker/device_claim.h"

namespace sluice {

// The CUDA devices of this machine. Tests have others.
struct CudaDevices {
  std::function<absl::StatusOr<std::vector<CudaDeviceInfo>>()> list = &ListCudaDevices;
  // What computing on it needs is there: makes its context and loads cuBLAS.
  std::function<absl::StatusOr<CudaDeviceInfo>(int ordinal)> open = &OpenUsableCudaDevice;

  static absl::StatusOr<CudaDeviceInfo> OpenUsableCudaDevice(int ordinal);
};

struct WorkerDevice {
  ComputeDevice device;
  std::optional<DeviceClaim> claim;  // of a CUDA device
  // For the log: device, capability, driver and runtime; of kAuto, why it is that one.
  std::string line;
};

// Fails as cuda_device.h says; FAILED_PRECONDITION when another worker has the device, or all of
// them. kAuto does not fail.
absl::StatusOr<WorkerDevice> TakeDevice(const DeviceRequest& request,
                                        const CudaDevices& devices = CudaDevices());

}  // namespace sluice
