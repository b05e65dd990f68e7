// Says which processes see the same pids as this one, and whether a pid still runs.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// Names the host, its boot and the pid namespace of this process. Processes with the same name see
// the same pids. Empty when the system does not say.
std::string ProcessSpace();

// True when no process with this pid runs in this space: none exists, or it has ended and waits to
// be reaped. A pid that the system has reused counts as running.
bool ProcessHasEnded(uint32_t pid);

}  // namespace sluice
