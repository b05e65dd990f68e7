#include "model/data/expand_files.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

bool IsFolder(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

// The first folder that glob could not read. It is thread-local because glob passes no caller data
// to its callback.
struct UnreadableFolder {
  std::string path;
  int error = 0;
};
thread_local UnreadableFolder unreadable;

int RememberUnreadable(const char* path, int error) {
  if (error != ENOENT && error != ENOTDIR && unreadable.error == 0) unreadable = {path, error};
  return 0;
}

// The outermost folder on the way to `path` that may not be entered.
std::string ClosedFolder(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path reached;
  struct stat info;
  for (const fs::path& part : fs::path(path)) {
    reached /= part;
    if (stat(reached.c_str(), &info) != 0 && errno == EACCES) break;
  }
  return reached.parent_path().string();
}

absl::Status CannotRead(const std::string& folder, int error, const std::string& pattern) {
  return absl::PermissionDeniedError(absl::StrCat(
      "cannot read the folder ", folder, " for the data files \"", pattern,
      "\": ", std::strerror(error), "; let this user read it (chmod, chown), or correct the path"));
}

absl::Status ExpandPattern(const std::string& pattern, const std::string& base,
                           std::vector<std::string>* files) {
  struct stat info;
  if (stat(pattern.c_str(), &info) == 0) {  // the name of a file, even if it has wildcards
    if (S_ISDIR(info.st_mode)) {
      return absl::NotFoundError(
          absl::StrCat("data file \"", pattern, "\" is a folder; write \"", pattern, "/*\""));
    }
    files->push_back(pattern);
    return absl::OkStatus();
  }
  if (errno == EACCES) return CannotRead(ClosedFolder(pattern), EACCES, pattern);
  glob_t found{};
  unreadable = {};
  const int result = glob(pattern.c_str(), 0, &RememberUnreadable, &found);
  const size_t before = files->size();
  if (result == 0) {
    for (size_t i = 0; i < found.gl_pathc; ++i) {
      if (!IsFolder(found.gl_pathv[i])) files->push_back(found.gl_pathv[i]);
    }
  }
  globfree(&found);
  // Fails even when other folders have matches, because the files of this one would be left out
  // silently.
  if (unreadable.error != 0) return CannotRead(unreadable.path, unreadable.error, pattern);
  if (files->size() > before) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern,
                                          "\"; relative paths are resolved against ", base));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, const std::string& base) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns)
    SLUICE_RETURN_IF_ERROR(ExpandPattern(pattern, base, &files));
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::vector<std::string> WarnOfFilesNamedAgain(const JobConfig& job) {
  std::vector<std::string> warnings;
  const auto check = [&](const char* field,
                         const google::protobuf::RepeatedPtrField<std::string>& patterns) {
    std::vector<std::string> files;
    for (const std::string& pattern : patterns) {
      if (!ExpandPattern(pattern, "", &files).ok()) return;  // reading the files reports the reason
    }
    const size_t named = files.size();
    std::sort(files.begin(), files.end());
    const auto again = std::adjacent_find(files.begin(), files.end());
    if (again == files.end()) return;
    const std::string first = *again;
    const size_t different = std::unique(files.begin(), files.end()) - files.begin();
    warnings.push_back(absl::StrCat(field, " names ", named, " files, of which ", different,
                                    " are different (", first, " comes again); each is read once"));
  };
  if (!job.evaluate_only()) check("data.train_files", job.data().train_files());
  check("data.eval_files", job.data().eval_files());
  return warnings;
}

}  // namespace sluice
