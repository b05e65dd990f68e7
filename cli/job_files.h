// The files that a job reads and writes, looked at before any process is started for it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice::cli {

// Of a job that runs on this host: its data and initial model can be read, and its output folder
// (an empty output_dir: `default_output`) and trace_file written; then as CheckWhatIsHere. Leaves
// nothing behind.
// INVALID_ARGUMENT names field, path and fix.
absl::Status CheckJobFiles(const JobConfig& job, const std::string& default_output);

// Of a job that another process of this host runs: what is here of its first training and
// evaluation file has the columns that the job reads, and its initial model fits. INVALID_ARGUMENT
// names what does not; what is not here is told by who reads all of it.
absl::Status CheckWhatIsHere(const JobConfig& job);

// The warnings about the job that its status has later, a line each: for a dry run.
std::vector<std::string> WarningsOf(const JobConfig& job);

// Of a job that another process of this host runs, maybe as another user: output_dir is no file and
// not below one, and trace_file no folder and not below a file.
absl::Status CheckOutputIsNoFile(const JobConfig& job);

}  // namespace sluice::cli
