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
// Of the project: "0.1.0".
const char* SluiceVersion();
// gRPC writes nothing to stderr by itself, unless GRPC_VERBOSITY is set: what fails comes as a
// Status and is told once. Before the first call of gRPC.
void QuietGrpc();

}  // namespace sluice
