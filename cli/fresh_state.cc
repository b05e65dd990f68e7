#include "cli/fresh_state.h"

#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

namespace fs = std::filesystem;

// True for an empty folder and for one with nothing but the files of a RocksDB.
bool IsState(const fs::path& dir) {
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(dir, error))) return false;
  for (const fs::directory_entry& entry : fs::directory_iterator(dir, error)) {
    const std::string name = entry.path().filename().string();
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
