// The folders of a local cluster: the one of its logs, which no other cluster uses meanwhile, and
// the one of its scheduler's state.
//
// Lock: the launcher holds a lock on <folder>/cluster.textproto while it lives. Afterwards the
// folder of the logs stays in use until the processes that endpoints.log names have ended.
//
// Thread safety: one thread at a time.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "common/base/file_lock.h"

namespace sluice::cli {

class LogFolder {
 public:
  // Creates the folder when it is missing and keeps its contents. FAILED_PRECONDITION when another
  // cluster uses it. INVALID_ARGUMENT when it cannot be used, or when Sluice did not write its
  // cluster.textproto or endpoints.log, which a cluster would replace.
  static absl::StatusOr<LogFolder> Take(const std::string& path, Env* env);
  // Takes `path`, or the first of path-2, path-3, ... that no other cluster uses.
  static absl::StatusOr<LogFolder> TakeOrNext(const std::string& path, Env* env);

  const std::string& path() const { return path_; }
  // The cluster's ClusterConfig, which its processes read.
  std::string cluster_file() const { return path_ + "/cluster.textproto"; }

 private:
  LogFolder(std::string path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  FileLock lock_;
};

// Removes the scheduler's state of an earlier cluster, so that its jobs do not come back.
// INVALID_ARGUMENT: `dir` is something else, and is left alone.
// REQUIRES: no scheduler uses it.
absl::Status ClearState(const std::string& dir);

}  // namespace sluice::cli
