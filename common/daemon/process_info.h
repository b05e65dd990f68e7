// Facts about this process and host, for reports.
//
// Thread safety: free functions, safe from any thread. Call QuietGrpc before other threads start.
#pragma once

#include <cstdint>
#include <string>

namespace sluice {

// Resident memory in bytes (/proc/self/statm); 0 when it cannot be read.
uint64_t ResidentBytes();
std::string HostName();
// The version of the project, with the commit when it is known: "0.1.0 (COMMIT)".
const char* SluiceVersion();
// Keeps gRPC from writing to stderr, unless GRPC_VERBOSITY is set. Failures come as a Status and
// are reported once. Call it before the first use of gRPC.
void QuietGrpc();

}  // namespace sluice
