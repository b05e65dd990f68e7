#include "common/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder, Env* env) {
  const auto opened = env->OpenFile(folder, O_RDONLY | O_DIRECTORY);
  if (!opened.ok()) {
    return absl::NotFoundError(
        absl::StrCat("cannot open the folder ", folder, ": ", opened.status().message()));
  }
  const int fd = *opened;
  FolderLock lock(fd);
  // Errors other than EWOULDBLOCK come from file systems without locks.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return lock;
  return absl::AlreadyExistsError(absl::StrCat(folder, " is in use by another process"));
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace sluice
