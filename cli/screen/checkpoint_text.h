// Texts about checkpoints and recovery: those of a job (status, progress), and checkpoints in a
// folder (sluice ckpt).
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/base/env.h"
#include "proto/scheduler.pb.h"

namespace sluice::cli {

// "checkpoint of step 1,200 35 s ago" and how many failed, for the live line; "" when there is
// nothing to say.
std::string CheckpointAge(const CheckpointStatus& status);
// The same with size, counts, the last error and what is being done, for `sluice status`.
std::string DescribeCheckpoints(const CheckpointStatus& status);
// The job's newest export, the state of its chain and what is being done, for `sluice status`; ""
// when the job makes no exports.
std::string DescribeExports(const ExportStatus& status);
// Says what was lost and done again, e.g. "1 worker lost, 2 rollbacks, 512 examples trained again";
// "" when nothing was lost.
std::string DescribeRecovery(const Recovery& recovery);

// `dir` is a folder of checkpoints, a job's output_dir with one, or a single checkpoint. All
// functions return NOT_FOUND when it is none of them.

// A table of step, age, size and state (complete, or the damaged file), newest first. Does not read
// the values.
absl::StatusOr<std::string> CheckpointList(const std::string& dir, Env* env, absl::Time now);
// Reads every byte of one or all checkpoints. Calls `say` with a line for each damaged file and a
// line for each checkpoint. DATA_LOSS names the first damaged file.
absl::Status VerifyCheckpoints(const std::string& dir, Env* env,
                               const std::function<void(const std::string& line)>& say);
// The job, position and tables of a checkpoint; of the newest one in a folder of several.
absl::StatusOr<std::string> DescribeCheckpoint(const std::string& dir, Env* env, absl::Time now);

}  // namespace sluice::cli
