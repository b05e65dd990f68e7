#include "cli/cluster/cluster_folders.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/jobs/endpoints.h"
#include "common/base/file_origin.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"

namespace sluice::cli {
namespace {

constexpr int kMostClusters = 1000;

// Earlier versions wrote cluster.textproto without kOwnClusterLine. Such a file is recognized
// by its exact form and by pservers at port 0, which no cluster started by hand has.
bool IsClusterOfAnEarlierVersion(Env* env, const std::string& file) {
  const auto text = env->ReadFile(file);
  const auto config = ReadClusterConfig(file);
  return text.ok() && config.ok() && config->name() == "local" &&
         std::all_of(config->pservers().begin(), config->pservers().end(),
                     [](const std::string& address) { return address == "127.0.0.1:0"; }) &&
         ToTextproto(*config) == *text;
}

absl::Status CheckOwn(Env* env, const std::string& file, FileKind kind) {
  if (CheckReplaceable(env, file, kind, false, "log_dir").ok()) return absl::OkStatus();
  if (kind == FileKind::kClusterConfig && IsClusterOfAnEarlierVersion(env, file))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file,
                   " exists but does not look like a file that Sluice wrote; move it away, or "
                   "give another --log_dir"));
}

// FAILED_PRECONDITION names a process of the cluster in `path` that still runs. `role`: looks only
// for such a process, if given.
absl::Status CheckNoneRuns(const std::string& path, const std::string& role = "") {
  for (const Endpoint& e : ReadEndpoints(path)) {
    if ((!role.empty() && e.role != role) || !IsAlive(e)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "a cluster runs in ", path, " (", e.role, " ", e.rank, ", pid ", e.pid,
        "); stop it with sluice down --log_dir=", path, ", or give another --log_dir"));
  }
  return absl::OkStatus();
}

namespace fs = std::filesystem;

// True for an empty folder and for one with nothing but the files of a RocksDB.
bool IsState(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(dir, error))) return false;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
    // These are the names that RocksDB gives. Anything else means that the folder is not only ours
    // to delete.
    const bool own = name == "CURRENT" || name == "IDENTITY" || name == "LOCK" ||
                     absl::StartsWith(name, "LOG") || absl::StartsWith(name, "MANIFEST-") ||
                     absl::StartsWith(name, "OPTIONS-") || absl::StartsWith(name, ".") ||
                     absl::EndsWith(name, ".log") || absl::EndsWith(name, ".sst") ||
                     absl::EndsWith(name, ".dbtmp");
    if (!own || entry.is_directory(error)) return false;
  }
  return !error;
}

}  // namespace

absl::StatusOr<LogFolder> LogFolder::Take(const std::string& path, Env* env) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot use the log folder ", path, ": ",
                                                   error.message(), "; give a writable --log_dir"));
  }
  // This check comes before the lock, so that a refused folder gets no new file.
  SLUICE_RETURN_IF_ERROR(CheckOwn(env, path + "/endpoints.log", FileKind::kEndpoints));
  uint32_t holder = 0;
  const std::string cluster_file = path + "/cluster.textproto";
  absl::StatusOr<FileLock> lock = FileLock::Take(cluster_file, &holder);
  if (absl::IsAlreadyExists(lock.status())) {
    // The supervisor of a cluster also holds the lock.
    SLUICE_RETURN_IF_ERROR(CheckNoneRuns(path, kSupervisorRole));
    return absl::FailedPreconditionError(
        absl::StrCat("another sluice launch or up uses ", path,
                     holder > 0 ? absl::StrCat(" (pid ", holder, ")") : "",
                     "; wait until it has ended, or give another --log_dir"));
  }
  if (!lock.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(lock.status().message(), "; give a writable --log_dir"));
  }
  // This check comes after the lock: another launch may have been writing the file until then.
  SLUICE_RETURN_IF_ERROR(CheckOwn(env, cluster_file, FileKind::kClusterConfig));
  SLUICE_RETURN_IF_ERROR(CheckNoneRuns(path));
  return LogFolder(path, *std::move(lock));
}

absl::StatusOr<LogFolder> LogFolder::TakeOrNext(const std::string& path, Env* env) {
  absl::StatusOr<LogFolder> folder = Take(path, env);
  for (int i = 2; i <= kMostClusters && absl::IsFailedPrecondition(folder.status()); ++i) {
    folder = Take(absl::StrCat(path, "-", i), env);
  }
  return folder;
}

absl::Status ClearState(const std::string& dir) {
  std::error_code error;
  if (!fs::exists(fs::symlink_status(dir, error))) return absl::OkStatus();
  if (!IsState(dir)) {
    return absl::InvalidArgumentError(
        absl::StrCat(dir,
                     " exists but does not look like the state of a scheduler; move it away, "
                     "or give another --log_dir"));
  }
  fs::remove_all(dir, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot remove the earlier cluster's state ", dir,
                                                 ": ", error.message(),
                                                 "; give a writable --log_dir"));
}

}  // namespace sluice::cli
