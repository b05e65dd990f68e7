// The addresses of a cluster's schedulers, as flags and files give them: host:port[,host:port...].
//
// One of the schedulers leads, and the others stand by.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/config/address.h"

namespace sluice {

// At least one address. INVALID_ARGUMENT when a part is no address (ParseAddress) or is given
// twice, or when one of several has port 0, so that the others could not find it.
absl::StatusOr<std::vector<Address>> ParseAddressList(const std::string& text);

// True when all hosts of the list are loopback ones (IsLoopback).
bool AllLoopback(const std::vector<Address>& addresses);

}  // namespace sluice
