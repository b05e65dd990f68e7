// The flags that describe a job, of launch and submit.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command_line.h"
#include "common/config/job_config.h"
#include "proto/config.pb.h"

namespace sluice::cli {

// --job, the short options of job_config.h, --set, --dry_run and --progress.
std::vector<FlagSpec> JobFlags();

// The effective config of --job: file, then SLUICE_* variables, then `follows` (from other flags),
// then flags. INVALID_ARGUMENT for all that is wrong, also with its model, which needs no cluster
// to know.
absl::StatusOr<JobConfig> JobFromFlags(const ParsedCommand& command,
                                       const std::vector<ConfigOverride>& follows = {});

}  // namespace sluice::cli
