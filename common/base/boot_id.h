// Tells whether two processes run on one host.
//
// Thread safety: free function.
#pragma once

#include <string>

namespace sluice {

// A random id that the kernel draws when the host boots: processes with different ones are on
// different hosts. Containers of one host have the same. Empty when the kernel does not tell.
std::string BootId();

}  // namespace sluice
