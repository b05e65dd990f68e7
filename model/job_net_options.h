// Derives the options of a worker's network from its job.
//
// Thread safety:
//   pure function.
#pragma once

#include "absl/status/statusor.h"
#include "model/net/net_options.h"
#include "proto/config.pb.h"

namespace sluice {

// `job` must be effective (job_config.h). INVALID_ARGUMENT names a field that `device` does not
// support, and the fix.
absl::StatusOr<NetOptions> NetOptionsOf(const JobConfig& job, const ComputeDevice& device,
                                        int threads);

}  // namespace sluice
