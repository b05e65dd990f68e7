// Finds the checkpoint that a submitted job continues from.
//
// Thread safety: safe.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "proto/scheduler.pb.h"
#include "scheduler/resume_point.h"

namespace sluice {

// Returns the newest checkpoint in CheckpointRoot(request.config), whose job and state fit. With
// allow_older damaged ones are passed over. Null when there is none: the job starts from the
// beginning. Both are added to *warnings. INVALID_ARGUMENT names the field that does not fit;
// DATA_LOSS names the damaged file. Reads files: a few small ones, or with allow_older all of the
// checkpoint. `request.config` is effective. With `wanted`, others are left out.
absl::StatusOr<std::unique_ptr<const ResumePoint>> FindResumePoint(
    const SubmitJobRequest& request, Env* env, Clock* clock, std::vector<std::string>* warnings,
    const std::function<bool(const Manifest&)>& wanted = nullptr);

}  // namespace sluice
