// What a command is going to write, looked at before any work: it takes the place of nothing that
// Sluice did not write, and never of the command's own input.
//
// Paths are compared by device and inode, so that links and spellings play no part. Every error is
// INVALID_ARGUMENT and names the flag or field, the file and the fix.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice::cli {

// A file that a command reads.
struct InputFile {
  std::string what;  // "the job file"
  std::string path;
};

// The job file, the data and the model that a job reads, as far as they can be found here.
std::vector<InputFile> InputsOf(const JobConfig& job, const std::string& job_file);
// The files of a saved model.
std::vector<InputFile> FilesOfModel(const std::string& model_dir);

// Refuses `output` when it is one of the inputs; --overwrite does not help then.
absl::Status CheckIsNoInput(const std::string& flag, const std::string& output,
                            const std::vector<InputFile>& inputs);

// Of the output files of a job, none is one of its inputs.
absl::Status CheckJobKeepsInputs(const JobConfig& job, const std::string& job_file);
// The same; and each that exists here was written by Sluice, unless the job says `overwrite`.
absl::Status CheckJobOutputs(const JobConfig& job, const std::string& job_file);

// Of a file that cannot be told from others (scores, generated data): it does not exist yet, is a
// pipe or device, or --overwrite is given; and it is none of the inputs.
absl::Status CheckOutputFile(const std::string& flag, const std::string& output, bool overwrite,
                             const std::vector<InputFile>& inputs);

}  // namespace sluice::cli
