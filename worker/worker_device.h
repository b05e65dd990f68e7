// Chooses the device that a worker computes on, at its start, and claims it until the worker ends.
//
// Thread safety: one thread, main's.
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

// Access to the CUDA devices of this host. Tests replace it.
struct CudaDevices {
  std::function<absl::StatusOr<std::vector<CudaDeviceInfo>>()> list = &ListCudaDevices;
  // Checks that the device can compute: creates its context and loads cuBLAS.
  std::function<absl::StatusOr<CudaDeviceInfo>(int ordinal)> open = &OpenUsableCudaDevice;

  static absl::StatusOr<CudaDeviceInfo> OpenUsableCudaDevice(int ordinal);
};

struct WorkerDevice {
  ComputeDevice device;
  std::optional<DeviceClaim> claim;  // set for a CUDA device
  // For the log: device, capability, driver and runtime; for kAuto also why it was chosen.
  std::string line;
};

// Takes the requested device. FAILED_PRECONDITION when another worker has it, or when other workers
// have all of them; other errors as in cuda_device.h. kAuto does not fail.
absl::StatusOr<WorkerDevice> TakeDevice(const DeviceRequest& request,
                                        const CudaDevices& devices = CudaDevices());

}  // namespace sluice
