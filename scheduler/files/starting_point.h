// Reads from disk where a job starts. A job that is submitted with --resume, or that an earlier
// scheduler ran, continues from a checkpoint (ResumePoint, see resume_point.h). A new job may get
// its first values from one (JobConfig.initial_checkpoint).
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "model/model_match.h"
#include "proto/config.pb.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"
#include "proto/state.pb.h"
#include "scheduler/job/resume_point.h"

namespace sluice {

// Returns the point of the checkpoint that FindCheckpointToResume (model/resume_match.h) finds,
// with the same errors. Null when there is none: the job starts from the beginning. *warnings says
// so, and names the damaged checkpoints that were passed over.
absl::StatusOr<std::unique_ptr<const ResumePoint>> FindResumePoint(
    const SubmitJobRequest& request, Env* env, Clock* clock, std::vector<std::string>* warnings,
    const std::function<bool(const Manifest&)>& wanted = nullptr);

// Returns the newest checkpoint that one of the job's own attempts has made. If they have made
// none, returns the checkpoint that the job was submitted to resume from, or null: the job starts
// from the beginning. Damaged checkpoints are passed over if the job's submission allowed it, with
// an entry in *warnings; else DATA_LOSS names the damaged file. Whole files are read only to skip
// damaged checkpoints, and only with `verify`; without it none is skipped.
absl::StatusOr<std::unique_ptr<const ResumePoint>> FindRestartPoint(
    const JobRecord& record, bool verify, Env* env, Clock* clock,
    std::vector<std::string>* warnings);

// Returns the checkpoint in the folder `dir`, from which an attempt of this job has begun.
absl::StatusOr<std::unique_ptr<const ResumePoint>> ReadResumePoint(const std::string& dir,
                                                                   const JobConfig& config,
                                                                   Env* env, Clock* clock);

// Replaces config->initial_checkpoint by the folder of the checkpoint that it stands for, and
// checks that the job can start from it. Does nothing when the field is empty. The warnings also
// say which damaged checkpoints were passed over. NOT_FOUND: there is no checkpoint.
// INVALID_ARGUMENT names the table or feature that does not fit. DATA_LOSS names the damaged file.
// Reads files: all of a checkpoint that is chosen in a folder.
absl::StatusOr<StartCheck> FindInitialCheckpoint(Env* env, JobConfig* config);

}  // namespace sluice
