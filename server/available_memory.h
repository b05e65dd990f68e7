// How much memory this process can still get without swapping: what the machine has, and what its
// control groups (v1 and v2) leave.
//
// Thread safety: safe.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// The least of MemAvailable and of limit - usage of this process's memory control group and of each
// group above it, in bytes; a group's file cache that can be dropped at once is not usage.
// UINT64_MAX when nothing of it can be read. `root`: of another tree, for tests.
uint64_t AvailableMemory(const std::string& root = "");

}  // namespace sluice
