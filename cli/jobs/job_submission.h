// Submits a job, as launch and submit do: makes the job and the request from their flags, and calls
// a scheduler that may die and be started again meanwhile.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/config/job_config.h"
#include "common/daemon/scheduler_client.h"
#include "proto/config.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// --job, the short options of job_config.h, --set, --resume, --allow_older, --dry_run and
// --progress.
std::vector<FlagSpec> JobFlags();

// Returns the effective config of --job. Later sources override earlier ones: the file, SLUICE_*
// variables, `follows` (settings derived from other flags), flags. INVALID_ARGUMENT for every
// problem that can be found without a cluster, including problems of the model.
absl::StatusOr<JobConfig> JobFromFlags(const ParsedCommand& command,
                                       const std::vector<ConfigOverride>& follows = {});

// The same for the job in `file`, which a program has written: whatever --job says, and relative
// paths that an override sets are relative to the current folder, not to the file's.
absl::StatusOr<JobConfig> JobOfProgram(const std::string& file, const ParsedCommand& command,
                                       const std::vector<ConfigOverride>& follows = {});

// INVALID_ARGUMENT: the job is longer than a scheduler takes (control_plane.h).
absl::Status CheckSubmissionSize(const SubmitJobRequest& request);

// Returns the request that submits `job` with what --resume and --allow_older say.
// INVALID_ARGUMENT when the job cannot resume: its mode makes no checkpoints, or the folder of its
// checkpoints is not known before it has a job_id; or a new table cannot have its num_shards.
absl::StatusOr<SubmitJobRequest> SubmissionFromFlags(const ParsedCommand& command,
                                                     const JobConfig& job);

// Repeats the call until it is answered, at most for `patience` of `clock`; the job is submitted
// once at most. Between two calls `check_cluster` is called (may be null), whose error ends this.
absl::StatusOr<SubmitJobReply> SubmitJob(SchedulerClient* client, const SubmitJobRequest& request,
                                         absl::Duration patience,
                                         const std::function<absl::Status()>& check_cluster,
                                         Clock* clock);

}  // namespace sluice::cli
