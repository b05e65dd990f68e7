// Says which job measures the costs of a job, and in which mode a job is planned.
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/plan/plan_model.h"
#include "common/config/mode.h"
#include "proto/config.pb.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

// The mode in which the job trains; collective for a sync job whose workers keep dense tables.
PlanMode PlanModeOf(const JobConfig& job);

// The job that measures `job` in `mode` on the sample's files: one worker, all tables on pservers,
// nothing saved, no evaluation. INVALID_ARGUMENT when the configuration does not allow the mode.
absl::StatusOr<JobConfig> MeasuredJob(const JobConfig& job, Mode mode, uint32_t k_steps,
                                      const std::vector<std::string>& files,
                                      const std::string& folder);

}  // namespace sluice::plan
