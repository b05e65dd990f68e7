// Which process numbers of this machine mean the same as ours, and which of them run.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// Names the host, its boot and the pid namespace of this process: a process that gives the same
// name sees the same process numbers. Empty when the system does not say.
std::string ProcessSpace();

// No process of this number runs in this space: there is none, or it has ended and waits to be
// reaped. A number that has been given to another process counts as running.
bool ProcessHasEnded(uint32_t pid);

}  // namespace sluice
