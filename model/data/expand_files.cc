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
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "common/base/local_path.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

// What glob's callbacks work with. It is thread-local because glob passes them no data of the
// caller.
struct GlobState {
  Env* env = nullptr;
  size_t entries_left = 0;
  bool too_many_entries = false;
  std::string unreadable;  // the first folder that could not be read
  absl::Status why;        // OK: there is none
};
thread_local GlobState glob_state;

// As stat(2) with open(2)'s `flags`.
absl::Status LookAt(Env* env, const std::string& path, int flags, struct stat* info) {
  SLUICE_ASSIGN_OR_RETURN(const int fd, env->OpenFile(path, O_PATH | flags));
  const int result = fstat(fd, info);
  const int error = errno;
  close(fd);
  return result == 0 ? absl::OkStatus() : absl::ErrnoToStatus(error, "");
}

// After the last entry that may be read, glob finds that all folders are empty, and soon ends.
bool TakeEntry() {
  glob_state.too_many_entries = glob_state.too_many_entries || glob_state.entries_left == 0;
  if (glob_state.too_many_entries) return false;
  --glob_state.entries_left;
  return true;
}

void* OpenFolder(const char* path) {
  // A folder costs as much as an entry, even one that is empty or cannot be opened.
  if (!TakeEntry()) {
    errno = ENOENT;
    return nullptr;
  }
  const auto fd = glob_state.env->OpenFile(path, O_RDONLY | O_DIRECTORY);
  if (fd.ok()) return fdopendir(*fd);
  // FAILED_PRECONDITION: it is no folder.
  const bool absent = absl::IsNotFound(fd.status()) || absl::IsFailedPrecondition(fd.status());
  if (!absent && glob_state.why.ok()) {
    glob_state.unreadable = path;
    glob_state.why = fd.status();
  }
  errno = absent ? ENOENT : EACCES;
  return nullptr;
}

int StatForGlob(const char* path, struct stat* info, int flags) {
  if (LookAt(glob_state.env, path, flags, info).ok()) return 0;
  errno = ENOENT;
  return -1;
}

// The paths that match. Folders are opened through `env`, so that a pattern finds only what `env`
// may open. Reads up to `entries` names; the rest is in `glob_state`.
std::vector<std::string> Glob(Env* env, size_t entries, const std::string& pattern) {
  glob_state = {env, entries};
  glob_t found{};
  found.gl_opendir = &OpenFolder;
  found.gl_readdir = [](void* folder) {
    dirent* const entry = readdir(static_cast<DIR*>(folder));
    return entry != nullptr && TakeEntry() ? entry : nullptr;
  };
  found.gl_closedir = [](void* folder) { closedir(static_cast<DIR*>(folder)); };
  found.gl_stat = [](const char* path, struct stat* info) { return StatForGlob(path, info, 0); };
  found.gl_lstat = [](const char* path, struct stat* info) {
    return StatForGlob(path, info, O_NOFOLLOW);
  };
  std::vector<std::string> paths;
  // Without GLOB_ERR: a folder that cannot be read is reported below, with its name.
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

// The name that a pattern stands for when all its wildcards are marked as plain characters.
std::string Unmarked(const std::string& pattern) {
  std::string name;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '\\' && i + 1 < pattern.size()) ++i;
    name += pattern[i];
  }
  return name;
}

struct FoundFile {
  std::string path;
  // Both 0: it could not be looked at. Reading it reports the reason.
  uint64_t device = 0, inode = 0;
};

// The files in the order of their paths, each once, under its first path. *again, unless null: the
// first path that leads to a file that has come before, and *first_path of that file.
std::vector<std::string> EachOnce(std::vector<FoundFile> found, std::string* again = nullptr,
                                  std::string* first_path = nullptr) {
  std::stable_sort(found.begin(), found.end(),
                   [](const FoundFile& a, const FoundFile& b) { return a.path < b.path; });
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, std::string> path_of;
  std::vector<std::string> files;
  for (FoundFile& file : found) {
    const bool repeated = !files.empty() && files.back() == file.path;
    const auto [known, is_new] = path_of.try_emplace({file.device, file.inode}, file.path);
    if (!repeated && (is_new || file.inode == 0)) {
      files.push_back(std::move(file.path));
    } else if (again != nullptr && again->empty()) {
      *first_path = repeated ? file.path : known->second;
      *again = std::move(file.path);
    }
  }
  return files;
}

// Collects the files that the patterns of one field match, with repetitions.
class Expansion {
 public:
  Expansion(Env* env, std::string base, const ExpandLimits& limits)
      : env_(env), base_(std::move(base)), limits_(limits), entries_left_(limits.entries) {}

  // Statuses as ExpandFiles.
  absl::Status Add(const std::string& pattern) {
    if (HasScheme(pattern)) {
      return absl::InvalidArgumentError(
          absl::StrCat("data file \"", pattern, "\" ", SchemeProblem(pattern)));
    }
    // The name of a file, even if it has wildcards.
    for (const std::string& name : {pattern, Unmarked(pattern)}) {
      SLUICE_ASSIGN_OR_RETURN(const bool found, AddName(name, pattern));
      if (found) return absl::OkStatus();
    }
    return AddMatches(pattern);
  }

  std::vector<FoundFile>& files() { return files_; }

 private:
  // False when there is no file `name`.
  absl::StatusOr<bool> AddName(const std::string& name, const std::string& pattern) {
    struct stat info;
    const absl::Status seen = LookAt(env_, name, 0, &info);
    if (absl::IsPermissionDenied(seen)) return CannotRead(ClosedFolder(name), seen, pattern);
    if (!seen.ok()) return false;
    if (S_ISDIR(info.st_mode)) {
      return absl::NotFoundError(
          absl::StrCat("data file \"", name, "\" is a folder; write \"", name, "/*\""));
    }
    SLUICE_RETURN_IF_ERROR(Take(name, &info, pattern));
    return true;
  }

  absl::Status AddMatches(const std::string& pattern) {
    const size_t before = files_.size();
    std::vector<std::string> found = Glob(env_, entries_left_, pattern);
    entries_left_ = glob_state.entries_left;
    if (glob_state.too_many_entries) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the folders that the data files \"", pattern, "\" lead to have more than ",
          limits_.entries,
          " names, the most that are read for one list of data files; put the files into folders "
          "of their own, and use no wildcard for folders that hold other things"));
    }
    for (std::string& path : found) {
      struct stat info;
      const bool seen = LookAt(env_, path, 0, &info).ok();
      if (seen && S_ISDIR(info.st_mode)) continue;
      SLUICE_RETURN_IF_ERROR(Take(std::move(path), seen ? &info : nullptr, pattern));
    }
    // Fails even when other folders have matches, because the files of this one would be left out
    // silently.
    if (!glob_state.why.ok()) return CannotRead(glob_state.unreadable, glob_state.why, pattern);
    if (files_.size() > before) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat("no data file matches \"", pattern,
                                            "\"; relative paths are resolved against ", base_));
  }

  // `info`: of the file; null when it could not be looked at.
  absl::Status Take(std::string path, const struct stat* info, const std::string& pattern) {
    if (files_.size() == limits_.files) {
      return absl::InvalidArgumentError(absl::StrCat(
          "with \"", pattern, "\" there are more than ", limits_.files,
          " data files, the most of one list; merge small files, or name fewer of them"));
    }
    FoundFile file{std::move(path)};
    if (info != nullptr && !limits_.keep_aliases) {
      file.device = info->st_dev;
      file.inode = info->st_ino;
    }
    files_.push_back(std::move(file));
    return absl::OkStatus();
  }

  Env* const env_;
  const std::string base_;
  const ExpandLimits limits_;
  size_t entries_left_;
  std::vector<FoundFile> files_;
};

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandFiles(
    const google::protobuf::RepeatedPtrField<std::string>& patterns, Env* env,
    const std::string& base, const ExpandLimits& limits) {
  Expansion expansion(env, base, limits);
  for (const std::string& pattern : patterns) SLUICE_RETURN_IF_ERROR(expansion.Add(pattern));
  return EachOnce(std::move(expansion.files()));
}

absl::StatusOr<std::vector<std::string>> WarnOfFilesNamedAgain(const JobConfig& job, Env* env,
                                                               const ExpandLimits& limits) {
  std::vector<std::string> warnings;
  const auto check =
      [&](const char* field,
          const google::protobuf::RepeatedPtrField<std::string>& patterns) -> absl::Status {
    Expansion expansion(env, "", limits);
    for (const std::string& pattern : patterns) {
      const absl::Status added = expansion.Add(pattern);
      if (absl::IsInvalidArgument(added))
        return absl::InvalidArgumentError(absl::StrCat(field, ": ", added.message()));
      if (!added.ok()) return absl::OkStatus();  // reading the files reports the reason
    }
    const size_t named = expansion.files().size();
    std::string again, first_path;
    const size_t different = EachOnce(std::move(expansion.files()), &again, &first_path).size();
    if (different == named) return absl::OkStatus();
    warnings.push_back(
        absl::StrCat(field, " names ", named, " files, of which ", different, " are different (",
                     again == first_path ? absl::StrCat(again, " comes again")
                                         : absl::StrCat(again, " is the same file as ", first_path),
                     "); each is read once"));
    return absl::OkStatus();
  };
  if (!job.evaluate_only())
    SLUICE_RETURN_IF_ERROR(check("data.train_files", job.data().train_files()));
  SLUICE_RETURN_IF_ERROR(check("data.eval_files", job.data().eval_files()));
  return warnings;
}

}  // namespace sluice
