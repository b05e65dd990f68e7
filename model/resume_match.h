// Finds the checkpoint from which a job continues with --resume, and checks that the job fits it.
// The command line asks before it starts anything, and the scheduler when it admits the job.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/saved_model/checkpoint.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

// A job that continues another one reads unknown values as that one did: each feature takes
// separate_unknown from the feature of its name in `saved`.
void KeepUnknownValues(const JobConfig& saved, JobConfig* config);

// Checks the state of the checkpoint in `dir` against a job that CheckResume has passed.
// INVALID_ARGUMENT when the job has too few epochs, or other workers than data.assignment:
// PER_RANK_FILES allows. DATA_LOSS when the state contradicts itself.
absl::Status CheckResumeState(const std::string& dir, const Manifest& manifest,
                              const JobConfig& job);

struct CheckpointToResume {
  CheckpointInfo checkpoint;
  JobConfig saved;  // the job that made it
};

// Returns the newest checkpoint in CheckpointRoot(request.config), whose job and state fit; nullopt
// when there is none. With allow_older damaged ones are passed over, each with an entry in
// *skipped. INVALID_ARGUMENT names the field that does not fit; DATA_LOSS names the damaged file.
// Reads files: a few small ones, or with allow_older all of the checkpoint. `request.config` is
// effective. With `wanted`, others are left out.
absl::StatusOr<std::optional<CheckpointToResume>> FindCheckpointToResume(
    const SubmitJobRequest& request, Env* env, std::vector<std::string>* skipped,
    const std::function<bool(const Manifest&)>& wanted = nullptr);

// The warning that FindCheckpointToResume has found none.
std::string NoCheckpointToResume(const JobConfig& job);

}  // namespace sluice
