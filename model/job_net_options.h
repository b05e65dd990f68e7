// What a job asks of the network that a worker makes for it.
//
// Thread safety: pure.
#pragma once

#include "absl/status/statusor.h"
#include "model/net/net_options.h"
#include "proto/config.pb.h"

namespace sluice {

// `job` must be effective (job_config.h). INVALID_ARGUMENT names the field that `device` cannot do,
// and the fix.
absl::StatusOr<NetOptions> NetOptionsOf(const JobConfig& job, const ComputeDevice& device,
                                        int threads);

}  // namespace sluice
