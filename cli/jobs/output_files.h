// Checks a command's output paths before any work is done. A command replaces only files that
// Sluice wrote, and never its own input.
//
// Paths are compared by device and inode, so that links and other spellings of a path are
// recognized. Every error is INVALID_ARGUMENT and names the flag or field, the file and the fix.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/env.h"
#include "proto/config.pb.h"

namespace sluice::cli {

// A file that a command reads.
struct InputFile {
  std::string what;  // "the job file"
  std::string path;
};

// Returns the job file, the data and the model that a job reads, as far as they exist on this host.
std::vector<InputFile> InputsOf(const JobConfig& job, const std::string& job_file, Env* env);
// Returns the files of a saved model.
std::vector<InputFile> FilesOfModel(const std::string& model_dir, Env* env);

// Refuses `output` when it is one of the inputs, even with --overwrite.
absl::Status CheckIsNoInput(const std::string& flag, const std::string& output,
                            const std::vector<InputFile>& inputs);

// Refuses a job whose outputs would replace one of its inputs.
absl::Status CheckJobKeepsInputs(const JobConfig& job, const std::string& job_file, Env* env);
// Also refuses to replace files that Sluice did not write, unless the job sets `overwrite`.
absl::Status CheckJobOutputs(const JobConfig& job, const std::string& job_file, Env* env);

// Checks an output whose content does not show who wrote it (scores, generated data). The file must
// not exist yet, unless it is a pipe or device or --overwrite is given. Inputs are always refused.
absl::Status CheckOutputFile(const std::string& flag, const std::string& output, bool overwrite,
                             const std::vector<InputFile>& inputs, Env* env);

}  // namespace sluice::cli
