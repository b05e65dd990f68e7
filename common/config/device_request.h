// Where a worker is asked to compute: the value of --device, SLUICE_DEVICE or worker_devices.
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
    kCuda,      // the CUDA device `ordinal`
    kNextCuda,  // the first CUDA device that no other worker of the host uses
    kAuto,      // as kNextCuda if the host has such a device, else the CPU
  };
  Kind kind = kCpu;
  int ordinal = 0;     // kCuda: counted among the devices that CUDA_VISIBLE_DEVICES shows
  std::string origin;  // for messages, e.g. "--device=cuda"; may be empty
};

// Parses "cpu", "cuda", "cuda:N" or "auto". INVALID_ARGUMENT lists these choices.
absl::StatusOr<DeviceRequest> ParseDeviceRequest(absl::string_view text);
// Parses a list of ordinals without duplicates, such as "0,2". INVALID_ARGUMENT names the wrong
// part.
absl::StatusOr<std::vector<int>> ParseDeviceList(absl::string_view text);

}  // namespace sluice
