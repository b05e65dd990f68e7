// Makes the engine with which the workers of a job exchange dense gradients.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "common/collective/collective.h"
#include "common/daemon/identity.h"
#include "model/net/net_options.h"
#include "proto/config.pb.h"

namespace sluice {

// `config`: of a job whose workers keep dense tables. PERMISSION_DENIED: the engine sends
// without encryption, and the cluster uses TLS without security.plain_collective.
// FAILED_PRECONDITION: the engine is NCCL, and this worker's `device` is the CPU. Other errors:
// those of MakeCollective.
absl::StatusOr<std::unique_ptr<Collective>> MakeJobCollective(const JobConfig& config,
                                                              const Identity& identity,
                                                              const ComputeDevice& device);

// The address of this host from which it reaches `peer`, host:port. Empty: there is none.
std::string AddressTowards(const std::string& peer);
// The same for the first of several peers, separated by commas, that this host has a route to.
std::string AddressTowardsAny(const std::string& peers);

}  // namespace sluice
