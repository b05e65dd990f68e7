// Processes that connect to the TCP port of a rank without being one.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/numbers.h"
#include "common/shared_memory/file_descriptor.h"
#include "tests/common/transport/connect_to_loopback.h"

namespace sluice {

// Connects to the port of `address` on 127.0.0.1. Returns no descriptor if that fails, as when the
// connection is refused.
inline FileDescriptor ConnectAsStranger(const std::string& address) {
  int port = 0;
  (void)absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port);
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!ConnectToLoopback(fd.get(), static_cast<uint16_t>(port))) return FileDescriptor();
  return fd;
}

// Reads until the other side closes the connection; returns what it said.
inline std::string ReadToEnd(const FileDescriptor& fd, int timeout_ms = 60'000) {
  std::string bytes;
  char part[4096];
  pollfd state = {fd.get(), POLLIN, 0};
  while (poll(&state, 1, timeout_ms) == 1) {
    const ssize_t size = recv(fd.get(), part, sizeof(part), 0);
    if (size <= 0) return bytes;
    bytes.append(part, static_cast<size_t>(size));
  }
  return bytes + "(still open)";
}

}  // namespace sluice
