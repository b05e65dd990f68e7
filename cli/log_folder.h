// The folder of a local cluster's logs, which no other cluster uses.
//
// Lock: the launcher has <folder>/cluster.textproto locked while it lives; after that, the
// processes that endpoints.log names keep the folder.
//
// Thread safety: one thread at a time.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/file_lock.h"

namespace sluice::cli {

class LogFolder {
 public:
  // Makes the folder when it is missing; what it holds stays. FAILED_PRECONDITION: another cluster
  // uses it. INVALID_ARGUMENT: it cannot be used, or holds a cluster.textproto or endpoints.log
  // that Sluice did not write, and that a cluster would replace.
  static absl::StatusOr<LogFolder> Take(const std::string& path);
  // `path`, or the first of path-2, path-3, ... that no other cluster uses.
  static absl::StatusOr<LogFolder> TakeOrNext(const std::string& path);

  const std::string& path() const { return path_; }
  // ClusterConfig of the cluster, for its processes.
  std::string cluster_file() const { return path_ + "/cluster.textproto"; }

 private:
  LogFolder(std::string path, FileLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}
  std::string path_;
  FileLock lock_;
};

}  // namespace sluice::cli
