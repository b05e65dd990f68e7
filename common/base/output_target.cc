#include "common/base/output_target.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/local_path.h"

namespace sluice {
namespace {

// The one spelling of a path or URL, without a slash at the end.
std::string Canonical(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  std::string spelled = path;
  if (!HasScheme(path)) {
    const fs::path found = fs::weakly_canonical(fs::absolute(path, error), error);
    if (!error) spelled = found.string();
  }
  while (spelled.size() > 1 && spelled.back() == '/') spelled.pop_back();
  return spelled;
}

}  // namespace

absl::Status CheckIsOutside(const std::string& output, const std::string& input) {
  std::error_code error;
  const std::string folder = Canonical(input);
  const std::string path = Canonical(HasScheme(output) ? output : ResolveOutput(output).path);
  const bool same = path == folder || std::filesystem::equivalent(path, folder, error);
  if (!same && !absl::StartsWith(path, folder + "/")) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--output=", output, same ? " is" : " lies in", " the folder that is read",
      output == input ? "" : absl::StrCat(" (", input, ")"), "; give an output outside of it"));
}

OutputTarget ResolveOutput(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  // Pipes and devices are written in place: a rename would replace them by a file.
  if (fs::exists(status) && !fs::is_regular_file(status)) return {path, true};
  fs::path target = path;
  // The link stays, and the file that it leads to is replaced.
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(target, error)); ++i) {
    const fs::path to = fs::read_symlink(target, error);
    if (error) break;
    target = to.is_absolute() ? to : target.parent_path() / to;
  }
  // A link in /proc to a file that no longer has a name cannot be replaced by a rename.
  if (fs::exists(status) && !fs::equivalent(path, target, error)) return {path, true};
  return {target.string(), false};
}

std::string UnfinishedName(const std::string& path) {
  return absl::StrCat(path, ".", ::getpid(), kUnfinishedSuffix);
}

absl::StatusOr<int> CreateUnfinished(const std::string& unfinished, const std::string& path) {
  const auto create = [&unfinished] {
    return ::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  };
  int fd = create();
  // Left by a process that had the same number, or put there by somebody: never opened, always
  // replaced.
  if (fd < 0 && errno == EEXIST && ::unlink(unfinished.c_str()) == 0) fd = create();
  if (fd >= 0) return fd;
  const int error = errno == EISDIR ? EEXIST : errno;
  return absl::ErrnoToStatus(
      error, absl::StrCat("cannot write ", path, "; check its folder and free space"));
}

absl::Status PutInPlace(const std::string& unfinished, const std::string& path, bool replace) {
  struct stat info;
  const bool nothing_to_lose = ::stat(path.c_str(), &info) == 0 && info.st_size == 0;
  if (!replace && !nothing_to_lose) {
    // The kernel checks and renames in one step, so that no other process can slip in between.
    if (::renameat2(AT_FDCWD, unfinished.c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE) == 0)
      return absl::OkStatus();
    if (errno == EEXIST) {
      return absl::AlreadyExistsError(absl::StrCat(
          path, " was created meanwhile; move it away, or replace it with --overwrite"));
    }
    // File systems that do not support RENAME_NOREPLACE return EINVAL: fall back to a plain rename.
    if (errno != EINVAL && errno != ENOSYS) {
      return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename to ", path));
    }
  }
  if (::rename(unfinished.c_str(), path.c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename to ", path));
}

}  // namespace sluice
