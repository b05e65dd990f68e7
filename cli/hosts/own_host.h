// Whether a name or address leads to this host.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

namespace sluice::cli {

// One of the addresses of `host` is an address of this host, loopback ones included.
bool IsOwnHost(const std::string& host);
// All addresses of `host` are addresses of this host, and others can reach them: none is loopback.
bool IsReachableHere(const std::string& host);

}  // namespace sluice::cli
