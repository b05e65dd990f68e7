// The flags that describe a job, of launch and submit.
#pragma once

#include <ostream>
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

// "adult: async, 2 workers x batch 512, 8 epochs, seed 0": what the job will do, in a line.
std::string Describe(const JobConfig& job);

// What a user may not expect of this job: a line each, "note: ...".
std::vector<std::string> NotesOn(const JobConfig& job);

// What launch and submit print of a job: `head`, a line each, the notes on it, and its
// configuration, in full when `brief` is false (EffectiveText).
void PrintJob(const std::string& head, const JobConfig& job, bool brief, std::ostream* out);

// "effective configuration:" and the whole of it, indented by two spaces; with `brief` (a terminal)
// only where the job's own copy of it is.
std::string EffectiveText(const JobConfig& job, bool brief);

}  // namespace sluice::cli
