// Where a worker is asked to compute, as --device, SLUICE_DEVICE and worker_devices say it.
//
// Thread safety: plain data.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice {

struct DeviceRequest {
  enum Kind {
    kCpu,
    kCuda,      // that one
    kNextCuda,  // the first CUDA device that no other worker of the host has
    kAuto,      // kNextCuda when there is one, else the CPU
  };
  Kind kind = kCpu;
  int ordinal = 0;     // of kCuda: among the devices that CUDA_VISIBLE_DEVICES shows
  std::string origin;  // for messages, as "--device=cuda"; may be empty
};

// "cpu", "cuda", "cuda:N" or "auto"; INVALID_ARGUMENT names them.
absl::StatusOr<DeviceRequest> ParseDeviceRequest(absl::string_view text);
// "0,2": ordinals, each once. INVALID_ARGUMENT names the part that is none.
absl::StatusOr<std::vector<int>> ParseDeviceList(absl::string_view text);

}  // namespace sluice
