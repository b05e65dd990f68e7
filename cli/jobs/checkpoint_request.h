// Asks for a checkpoint of a running job.
//
// Thread safety: a free function.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// Returns when the checkpoint is complete (`wait`), or when it was requested; the reply may then
// not be `done`. Asks anew when another scheduler answers. INTERNAL: the checkpoint failed.
// UNAVAILABLE: no scheduler has answered for kTakeoverPatience. Other errors are the scheduler's.
absl::StatusOr<CheckpointJobReply> RequestCheckpoint(const std::string& job_id, bool wait,
                                                     SchedulerClient* client, Clock* clock);

}  // namespace sluice::cli
