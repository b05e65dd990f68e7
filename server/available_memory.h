// How much memory this machine can still give without swapping.
//
// Thread safety: safe.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// MemAvailable of `path`, in bytes; UINT64_MAX when the file cannot be read or does not say.
uint64_t AvailableMemory(const std::string& path = "/proc/meminfo");

}  // namespace sluice
