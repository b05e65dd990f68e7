// Makes the options of a worker's ParameterClient from its assignment.
//
// Thread safety: a free function.
#pragma once

#include "absl/status/statusor.h"
#include "client/parameter_client.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// Job, rank, tables, route and limits of the assignment's job. The caller adds transport, clock,
// get_route and limits.max_message_bytes, which belong to the process. INVALID_ARGUMENT when the
// job has a table that cannot be.
absl::StatusOr<ParameterClient::Options> ClientOptionsOf(const WorkerAssignment& assignment);

}  // namespace sluice
