#include "common/base/match_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

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

}  // namespace

FileMatches MatchLocalFiles(Env* env, const std::string& pattern, size_t most_names) {
  glob_state = {env, most_names};
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
  FileMatches matches;
  // Without GLOB_ERR: a folder that cannot be read is reported with the matches.
  if (glob(pattern.c_str(), GLOB_ALTDIRFUNC, nullptr, &found) == 0)
    matches.paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  matches.names_read = most_names - glob_state.entries_left;
  matches.too_many_names = glob_state.too_many_entries;
  matches.unreadable = std::move(glob_state.unreadable);
  matches.why = std::move(glob_state.why);
  return matches;
}

}  // namespace sluice
