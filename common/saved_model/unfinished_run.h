// Finds the checkpoints of a run that has not finished: it crashed, failed or was cancelled. A new
// run in its folder would remove them, so it is refused unless the user says what is meant.
//
// A run that has finished lists the checkpoints that its folder held at its end as
// `kept_checkpoints` of its result. All other checkpoints are of runs that have not finished,
// whichever result lies beside them. A run that has not finished, or only evaluates, hands on what
// the result that it replaces lists, as `finished_checkpoints`. Results of earlier versions have no
// list; they name the step of their newest checkpoint.
//
// Thread safety:
//   free functions, safe from any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "common/saved_model/checkpoint.h"
#include "proto/config.pb.h"

namespace sluice {

// The names of the checkpoints under ROOT, newest first, as a finished run lists them.
std::vector<std::string> NamesOfCheckpoints(const std::string& root, Env* env);

// The checkpoints that the result at `path` lists as those of finished runs.
std::vector<std::string> FinishedCheckpoints(const std::string& path, Env* env);

// The newest checkpoint under ROOT that no finished run lists; nullopt: there is none. The results
// looked at are those in `output_dir`, in the output folders of the jobs that made the checkpoints,
// and in the folder around ROOT. Damaged checkpoints do not count.
std::optional<CheckpointInfo> FindUnfinished(const std::string& root, const std::string& output_dir,
                                             Env* env);

// INVALID_ARGUMENT, naming the newest checkpoint and the fix, when FindUnfinished finds one for the
// output folder of `job`. OK without a ROOT, and when the job starts from a checkpoint of ROOT
// (initial_checkpoint): who names one knows what the folder holds.
absl::Status CheckNoUnfinishedRun(const std::string& root, const JobConfig& job, Env* env);

}  // namespace sluice
