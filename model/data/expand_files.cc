#include "model/data/expand_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// What glob's callbacks work with. It is thread-local because glob passes them no data of the
// caller.
struct GlobState {
  Env* env = nullptr;
  std::string unreadable;  // the first folder that could not be read
  absl::Status why;        // OK: there is none
};
thread_local GlobState state;

// As stat(2) with open(2)'s `flags`.
absl::Status LookAt(Env* env, const std::string& path, int flags, struct stat* info) {
  SLUICE_ASSIGN_OR_RETURN(const int fd, env->OpenFile(path, O_PATH | flags));
  const int result = fstat(fd, info);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "");
}

bool IsFolder(Env* env, const std::string& path) {
  struct stat info;
  return LookAt(env, path, 0, &info).ok() && S_ISDIR(info.st_mode);
}

void* OpenFolder(const char* path) {
  const auto fd = state.env->OpenFile(path, O_RDONLY | O_DIRECTORY);
  if (fd.ok()) return fdopendir(*fd);
  // FAILED_PRECONDITION: it is no folder.
  const bool absent = absl::IsNotFound(fd.status()) || absl::IsFailedPrecondition(fd.status());
  if (!absent && state.why.ok()) {
    state.unreadable = path;
    state.why = fd.status();
  }
  errno = absent ? ENOENT : EACCES;
  return nullptr;
}

int StatForGlob(const char* path, struct stat* info, int flags) {
  if (LookAt(state.env, path, flags, info).ok()) return 0;
  errno = ENOENT;
  return -1;
}

// The paths that match. Folders are opened through `env`, so that a pattern finds only what `env`
// may open.
std::vector<std::string> Glob(Env* env, const std::string& pattern) {
  state = {env};
  glob_t found{};
  found.gl_opendir = &OpenFolder;
  found.gl_readdir = [](void* folder) { return readdir(static_cast<DIR*>(folder)); };
  found.gl_closedir = [](void* folder) { closedir(static_cast<DIR*>(folder)); };
  found.gl_stat = [](const char* path, struct stat* info) { return StatForGlob(path, info, 0); };
  found.gl_lstat = [](const char* path, struct stat* info) {
    return StatForGlob(path, info, O_NOFOLLOW);
  };
  std::vector<std::string> paths;
  if (glob(pattern.c_str(), GLOB_ALTDIRFUNC, nullptr, &found) == 0)
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  return paths;
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

// `why`: from Env::OpenFile.
absl::Status CannotRead(const std::string& folder, const absl::Status& why,
                        const std::string& pattern) {
  const bool by_system = why.message() == std::strerror(EACCES);
  return absl::PermissionDeniedError(absl::StrCat(
      "cannot read the folder ", folder, " for the data files \"", pattern, "\": ", why.message(),
      by_system ? "; let this user read it (chmod, chown), or correct the path" : ""));
}

absl::Status ExpandPattern(const std::string& pattern, const std::string& base, Env* env,
                           std::vector<std::string>* files) {
  struct stat info;
  const absl::Status seen = LookAt(env, pattern, 0, &info);
  if (seen.ok()) {  // the name of a file, even if it has wildcards
    if (S_ISDIR(info.st_mode)) {
      return absl::NotFoundError(
          absl::StrCat("data file \"", pattern, "\" is a folder; write \"", pattern, "/*\""));
    }
    files->push_back(pattern);
    return absl::OkStatus();
  }
  if (absl::IsPermissionDenied(seen)) return CannotRead(ClosedFolder(pattern), seen, pattern);
  const size_t before = files->size();
  for (std::string& path : Glob(env, pattern)) {
    if (!IsFolder(env, path)) files->push_back(std::move(path));
  }
  // Fails even when other folders have matches, because the files of this one would be left out
  // silently.
  if (!state.why.ok()) return CannotRead(state.unreadable, state.why, pattern);
  if (files->size() > before) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern,
                                          "\"; relative paths are resolved against ", base));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, Env* env,
    const std::string& base) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns)
    SLUICE_RETURN_IF_ERROR(ExpandPattern(pattern, base, env, &files));
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

std::vector<std::string> WarnOfFilesNamedAgain(const JobConfig& job, Env* env) {
  std::vector<std::string> warnings;
  const auto check = [&](const char* field,
                         const google::protobuf::RepeatedPtrField<std::string>& patterns) {
    std::vector<std::string> files;
    for (const std::string& pattern : patterns) {
      if (!ExpandPattern(pattern, "", env, &files).ok())
        return;  // reading the files reports the reason
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
