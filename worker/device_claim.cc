#include "worker/device_claim.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<DeviceClaim> DeviceClaim::Take(const std::string& uuid) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // The first byte stays 0, which puts the name in the abstract namespace: no file is made
  // (unix(7)).
  const std::string name = absl::StrCat("sluice/device/", uuid);
  if (name.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the name of device ", uuid, " is too long"));
  }
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return absl::InternalError(absl::StrCat("cannot claim ", uuid, ": ", std::strerror(errno)));
  }
  DeviceClaim claim(fd);
  const socklen_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  // Binding the name is the claim: the kernel lets one socket have it, and frees it with the
  // socket.
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return claim;
  if (errno == EADDRINUSE) {
    return absl::AlreadyExistsError("another worker of this host has it");
  }
  return absl::InternalError(absl::StrCat("cannot claim ", uuid, ": ", std::strerror(errno)));
}

DeviceClaim::~DeviceClaim() {
  if (socket_ >= 0) close(socket_);
}

}  // namespace sluice
