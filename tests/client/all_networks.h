// The networks of all transports: in memory, gRPC, and shared memory with its fallback.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <ostream>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/client/test_network.h"

namespace sluice {

std::unique_ptr<TestNetwork> NewInProcessNetwork();
std::unique_ptr<TestNetwork> NewGrpcNetwork();
// Streams go through rings of 4 KiB, so that a longer message waits for its reader. The control
// calls and the fallback use gRPC, as in a worker; under the thread sanitizer, which does not know
// gRPC's locks, they stay in memory.
std::unique_ptr<TestNetwork> NewShmNetwork();

// Without gRPC under the thread sanitizer.
std::vector<NetworkKind> AllNetworks();

inline std::string NameOf(const ::testing::TestParamInfo<NetworkKind>& info) {
  return info.param.name;
}
inline void PrintTo(const NetworkKind& kind, std::ostream* out) { *out << kind.name; }

}  // namespace sluice
