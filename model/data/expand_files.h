// Finds the data files that the patterns of a job name.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/config.pb.h"

namespace sluice {

// Expands globs; sorted, without duplicates. `env` opens the folders. NOT_FOUND names the pattern
// that matches nothing, and `base`, against which relative patterns were resolved.
// PERMISSION_DENIED names the folder that this user may not read, or that `env` refuses; it may
// hold matches.
absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, Env* env = Env::Real(),
    const std::string& base = "the folder of the job file");

// Warns of files that several entries of train_files (unless evaluate_only) or eval_files name;
// each is read once. Says nothing of entries that cannot be expanded here.
std::vector<std::string> WarnOfFilesNamedAgain(const JobConfig& job, Env* env = Env::Real());

}  // namespace sluice
