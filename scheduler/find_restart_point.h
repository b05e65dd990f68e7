// Finds the checkpoint from which a job of an earlier scheduler continues.
//
// Thread safety: safe.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "proto/model.pb.h"
#include "proto/state.pb.h"
#include "scheduler/resume_point.h"

namespace sluice {

// Returns the newest checkpoint that one of the job's own attempts has made; without one, that
// which the job was submitted to continue from; null when it was submitted without: the job starts
// from the beginning. Damaged checkpoints are passed over if the job's submission allowed it, with
// an entry in *warnings; else DATA_LOSS names the damaged file. Only to pass over damaged ones are
// whole files read; without `verify` they never are, and none is passed over.
absl::StatusOr<std::unique_ptr<const ResumePoint>> FindRestartPoint(
    const JobRecord& record, bool verify, Env* env, Clock* clock,
    std::vector<std::string>* warnings);

// Returns the checkpoint in the folder `dir`, from which an attempt of this job has begun.
absl::StatusOr<std::unique_ptr<const ResumePoint>> ReadRestartPoint(const std::string& dir,
                                                                    const JobConfig& config,
                                                                    Env* env, Clock* clock);

// True when one of the instances (JobSpec.instance) has made this checkpoint.
bool IsOfInstances(const Manifest& manifest,
                   const google::protobuf::RepeatedField<uint64_t>& instances);

}  // namespace sluice
