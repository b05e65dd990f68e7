// Facts about this process and host, for reports, and about other processes that see the same pids.
//
// Thread safety: free functions, safe from any thread. Call QuietGrpc before other threads start.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// Resident memory in bytes (/proc/self/statm); 0 when it cannot be read.
uint64_t ResidentBytes();
// CPU time of this process so far, of all its threads, in user and system mode.
double CpuSeconds();
std::string HostName();
// The version of the project, with the commit when it is known: "0.1.0 (COMMIT)".
const char* SluiceVersion();
// Keeps gRPC from writing to stderr, unless GRPC_VERBOSITY is set. Failures come as a Status and
// are reported once. Call it before the first use of gRPC.
void QuietGrpc();

// Names the host, its boot and the pid namespace of this process. Processes with the same name see
// the same pids. Empty when the system does not say.
std::string ProcessSpace();

// True when no process with this pid runs in this space: none exists, or it has ended and waits to
// be reaped. A pid that the system has reused counts as running.
bool ProcessHasEnded(uint32_t pid);

}  // namespace sluice
