// Submits a job to a scheduler that may die and be started again meanwhile.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <functional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {

// Repeats the call until it is answered, at most for `patience`; the job is submitted once at most.
// Between two calls `check_cluster` is called (may be null), whose error ends this.
absl::StatusOr<SubmitJobReply> SubmitJob(SchedulerClient* client, const SubmitJobRequest& request,
                                         absl::Duration patience,
                                         const std::function<absl::Status()>& check_cluster);

}  // namespace sluice::cli
