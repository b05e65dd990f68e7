// Says which settings a job may change when it continues from a checkpoint.
//
// A resumed job must compute what the saved one would have computed. So all that decides values
// must be equal: features, model, tables, optimizers, strategy, seed, batch size, and how examples
// are ordered. Free to change are the number of workers and of epochs, who keeps the dense
// tables in sync, evaluation, checkpoints, paths, the checkpoint that a new job would start from,
// limits and what a table does at its limit (evict), and what only affects speed or messages.
//
// Thread safety:
//   pure functions.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// INVALID_ARGUMENT names the first field that must be equal and is not, with both values. Both
// configurations are effective. The data files themselves are compared once the job runs.
absl::Status CheckResume(const JobConfig& saved, const JobConfig& job);

// The end of a refusal to resume from the checkpoint `dir`, begun with "; or": the ways that
// change what CheckResume forbids. The first one keeps the checkpoint.
std::string OrStartAnew(const std::string& dir);

// Checks the options of a submission against its effective configuration. INVALID_ARGUMENT when the
// job cannot resume: it makes no checkpoints, or nobody can know the folder of its checkpoints
// before it has a job_id. Also refuses allow_older without resume.
absl::Status CheckSubmission(const SubmitJobRequest& request);

}  // namespace sluice
