// A host:port pair, and the list of a cluster's schedulers, as flags and files give them.
//
// A list is host:port[,host:port...]. One of its schedulers leads, and the others stand by.
//
// Thread safety:
//   pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// At least one address. INVALID_ARGUMENT when a part is not an address (ParseAddress) or occurs
// twice. Also when one of several has port 0: the others could not find it.
absl::StatusOr<std::vector<Address>> ParseAddressList(const std::string& text);

// True when all hosts of the list are loopback ones (IsLoopback).
bool AllLoopback(const std::vector<Address>& addresses);

}  // namespace sluice
