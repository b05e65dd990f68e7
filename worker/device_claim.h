// A CUDA device that one worker of a host has to itself: a name in the kernel, of the device's
// UUID.
//
// It ends with its process, leaves no file, and is seen by every user and past a /tmp of one's own
// (systemd's PrivateTmp); a container with its own network has its own names. Thread safety: safe
// to move and destroy by one thread.
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
