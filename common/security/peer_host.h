// Tells hosts apart, for bounds per host.
//
// A host may use every IPv6 address of its network, so the first 64 bits of such an address name
// it. Loopback addresses and IPv4 addresses are hosts of their own.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace sluice {

// `ip`: 4 or 16 bytes, in network order. Returns a part of them.
std::string HostOfIp(const std::string& ip);
// `address`: "10.0.0.7:7000" gives "10.0.0.7", "[2001:db8::7]:7000" gives "2001:db8::/64". Other
// text names its own host, without what follows its last colon.
std::string HostOfAddress(absl::string_view address);

}  // namespace sluice
