#include "cli/log_folder.h"

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/endpoints.h"
#include "common/base/status_macros.h"

namespace sluice::cli {
namespace {

constexpr int kMostClusters = 1000;

}  // namespace

absl::StatusOr<LogFolder> LogFolder::Take(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot use the log folder ", path, ": ",
                                                   error.message(), "; give a writable --log_dir"));
  }
  uint32_t holder = 0;
  absl::StatusOr<FileLock> lock = FileLock::Take(path + "/cluster.textproto", &holder);
  if (absl::IsAlreadyExists(lock.status())) {
    return absl::FailedPreconditionError(
        absl::StrCat("another sluice launch or up uses ", path,
                     holder > 0 ? absl::StrCat(" (pid ", holder, ")") : "",
                     "; wait until it has ended, or give another --log_dir"));
  }
  if (!lock.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(lock.status().message(), "; give a writable --log_dir"));
  }
  for (const Endpoint& e : ReadEndpoints(path)) {
    if (!IsAlive(e)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "a cluster runs in ", path, " (", e.role, " ", e.rank, ", pid ", e.pid,
        "); stop it with sluice down --log_dir=", path, ", or give another --log_dir"));
  }
  return LogFolder(path, *std::move(lock));
}

absl::StatusOr<LogFolder> LogFolder::TakeOrNext(const std::string& path) {
  absl::StatusOr<LogFolder> folder = Take(path);
  for (int i = 2; i <= kMostClusters && absl::IsFailedPrecondition(folder.status()); ++i) {
    folder = Take(absl::StrCat(path, "-", i));
  }
  return folder;
}

}  // namespace sluice::cli
