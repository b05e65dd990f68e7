// Finds the data files that the patterns of a job name.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/config.pb.h"

namespace sluice {

// Bounds of what the patterns of one field cost, wherever they lead.
struct ExpandLimits {
  size_t files = 100'000;      // matches, those of several patterns counted each time
  size_t entries = 1'000'000;  // names that are read in folders
  // Several paths of one file (links, ./, ../, //) are several files.
  bool keep_aliases = false;
};

// Expands globs, and ranges of days or numbers in them, such as day={2026-11-01..2026-11-30}, of
// which each must match; sorted by their bytes. Names that begin with '_' or '.' match no wildcard
// at the beginning of a name. A file that has several of the paths (links, ./, ../, //) comes once,
// under the first of them. `env` opens the folders. NOT_FOUND names the pattern that matches
// nothing, and `base`, against which relative patterns were resolved. PERMISSION_DENIED names the
// folder that this user may not read, or that `env` refuses; it may hold matches. INVALID_ARGUMENT
// names the pattern that passes a limit; no more is read then.
absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, Env* env,
    const std::string& base = "the folder of the job file",
    const ExpandLimits& limits = ExpandLimits());

// Warns of files that several entries or paths of train_files (unless evaluate_only) or eval_files
// name; each is read once. Says nothing of entries that cannot be expanded here. INVALID_ARGUMENT
// names the field and the pattern that passes a limit.
absl::StatusOr<std::vector<std::string>> WarnOfFilesNamedAgain(
    const JobConfig& job, Env* env, const ExpandLimits& limits = ExpandLimits());

}  // namespace sluice
