// Processes that connect to the TCP port of a rank without being one.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <string>

#include "absl/strings/numbers.h"
#include "common/shared_memory/file_descriptor.h"

namespace sluice {

// Connects to 127.0.0.1:port. No descriptor: it was refused.
inline FileDescriptor ConnectAsStranger(const std::string& address) {
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  int port = 0;
  (void)absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port);
  to.sin_port = htons(static_cast<uint16_t>(port));
  FileDescriptor fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof(to)) != 0) return FileDescriptor();
  return fd;
}

// Reads until the other side closes the connection; returns what it said.
inline std::string ReadToEnd(const FileDescriptor& fd, int timeout_ms = 5000) {
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
