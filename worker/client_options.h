// Makes the options of a ParameterClient from a worker's assignment.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Returns the job, rank, tables, route and limits of the assignment. The caller adds transport,
// clock, get_route and limits.max_message_bytes, which belong to the process. INVALID_ARGUMENT when
// the job has an invalid table.
absl::StatusOr<ParameterClient::Options> ClientOptionsOf(const WorkerAssignment& assignment);

}  // namespace sluice
