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

// Checks the files of a job that other processes will run, as far as they are on this host. The
// first training and evaluation files must have the columns that the job reads, and its initial
// model must fit. INVALID_ARGUMENT names what does not. Workers report files that are missing here.
absl::Status CheckWhatIsHere(const JobConfig& job);

// Every pattern of the job's data files matches a file on this host. For a job whose workers can
// only run here, since its scheduler listens on a loopback address; they may be able to read what
// this user cannot. INVALID_ARGUMENT names field and pattern.
absl::Status CheckDataIsHere(const JobConfig& job);

// The warnings about the job that its status has later, a line each: for a dry run.
std::vector<std::string> WarningsOf(const JobConfig& job);

// Checks the outputs of a job that other processes will run, maybe as another user. output_dir must
// not be a file or lie below one; trace_file must not be a folder or lie below a file.
absl::Status CheckOutputIsNoFile(const JobConfig& job);

}  // namespace sluice::cli
