// Ports for servers that a test stops and starts again, and ports where nobody must listen.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {

// Returns a port of loopback that no other test gets until this process ends. It is below those
// that the kernel gives to listeners and to outgoing connections by itself (from 32768). A socket
// claims it, with the name that free_port() in tests/system/sluice_testing.py uses.
//
// Thread safety: one thread.
inline int FreePort() {
  constexpr int kFirst = 10000, kPorts = 20000;
  static int next = static_cast<int>(int64_t{::getpid()} * 61 % kPorts);  // processes start apart
  for (int tries = 0; tries < kPorts; ++tries) {
    const int port = kFirst + next;
    next = (next + 1) % kPorts;
    const std::string text = absl::StrCat("sluice test port ", port);
    sockaddr_un name = {};
    name.sun_family = AF_UNIX;
    std::memcpy(name.sun_path + 1, text.data(), text.size());  // abstract: it begins with a zero
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int claim = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool is_free =
        ::bind(claim, reinterpret_cast<const sockaddr*>(&name),
               static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size())) == 0 &&
        ::bind(server, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
    ::close(server);
    if (is_free) return port;
    ::close(claim);
  }
  ADD_FAILURE() << "no port is free";
  return 0;
}

}  // namespace sluice
