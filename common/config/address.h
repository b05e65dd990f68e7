// A host:port pair, as flags and files give it.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace sluice {

struct Address {
  std::string host;  // without the brackets of IPv6
  uint16_t port = 0;
};

// INVALID_ARGUMENT unless `text` is host:port with a port of 0 to 65535; [::1]:80 for IPv6.
absl::StatusOr<Address> ParseAddress(const std::string& text);
// "host:port", with brackets for IPv6.
std::string ToText(const Address& address);
// 127.0.0.0/8, ::1 and localhost.
bool IsLoopback(const std::string& host);

}  // namespace sluice
