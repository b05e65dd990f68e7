// Tells how much memory this process can still get without swapping: the least that the machine and
// its control groups (v1 and v2) leave.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// Returns the least, in bytes, of MemAvailable and of limit minus usage in this process's memory
// control group and each group above it. Reclaimable file cache does not count as usage. Returns
// UINT64_MAX if none of these can be read. `root`: prefix of /proc and /sys, for tests.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace sluice
