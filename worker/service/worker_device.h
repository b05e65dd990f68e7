// Chooses the device that a worker computes on, at its start, and claims it until the worker ends.
//
// Thread safety: one thread, main's.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/device_request.h"
#include "model/net/cuda/cuda_device.h"
#include "model/net/net_options.h"

namespace sluice {

// One worker's exclusive claim on a CUDA device of its host.
//
// The claim is a socket name in the kernel, made of the device's UUID. It ends with its process and
// leaves no file. All users of the host see it, even with a private /tmp (systemd's PrivateTmp). A
// container with its own network namespace has its own names.
class DeviceClaim {
 public:
  // ALREADY_EXISTS when another holder has it.
  static absl::StatusOr<DeviceClaim> Take(const std::string& uuid);

  DeviceClaim(DeviceClaim&& other) noexcept : socket_(std::exchange(other.socket_, -1)) {}
  DeviceClaim& operator=(DeviceClaim&& other) noexcept {
    std::swap(socket_, other.socket_);
    return *this;
  }
  ~DeviceClaim();

 private:
  explicit DeviceClaim(int socket) : socket_(socket) {}
  int socket_;
};

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
