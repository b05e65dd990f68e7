// One worker's exclusive claim on a CUDA device of its host.
//
// The claim is a socket name in the kernel, made of the device's UUID. It ends with its process and
// leaves no file. All users of the host see it, even with a private /tmp (systemd's PrivateTmp). A
// container with its own network namespace has its own names.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace sluice {

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

}  // namespace sluice
