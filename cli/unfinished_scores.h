// Claims and removes the unfinished files that `sluice predict` keeps next to its output while it
// scores.
//
// Format: FILE.PID.unfinished is the output of one process. FILE.PID.part-N are the outputs of N
// processes, and FILE.PID.part-all is what they are joined into; PID is the process that the user
// started.
//
// Thread safety: free functions.
#pragma once

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace sluice::cli {

// Returns the prefix of the names of `output`'s parts, for process `pid`.
std::string PartPrefix(const std::string& output, pid_t pid);
inline constexpr char kJoinedParts[] = "all";

// Creates `file` (CreateUnfinished), locks it and returns its descriptor. The lock lasts until this
// process and its children have ended, if none of them closes it. It protects `file` and the parts
// next to it from RemoveUnfinishedScores in a process that cannot see this one's pid, such as one
// in another container. Some file systems have no locks: then it is only created.
absl::StatusOr<int> ClaimUnfinished(const std::string& file);

// Removes the unfinished files of `output` that killed processes left behind. A file is
// removed only when all of this holds: its name is exactly of the format, its process has ended,
// no process has it locked, it is a regular file of this user, and it holds scores or nothing.
// Parts are removed together with their part-all, and only where there is one.
void RemoveUnfinishedScores(const std::string& output, Env* env);

}  // namespace sluice::cli
