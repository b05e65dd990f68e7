// Facts of this process and host, for reports.
//
// Thread safety: safe.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// Resident memory in bytes (/proc/self/statm); 0 when it cannot be read.
uint64_t ResidentBytes();
std::string HostName();

}  // namespace sluice
