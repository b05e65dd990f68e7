#include "common/base/folder_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace sluice {

absl::StatusOr<FolderLock> FolderLock::Take(const std::string& folder) {
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return absl::NotFoundError(
        absl::StrCat("cannot open the folder ", folder, ": ", std::strerror(errno)));
  }
  FolderLock lock(fd);
  // Errors other than EWOULDBLOCK come from file systems without locks.
  if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return lock;
  return absl::AlreadyExistsError(absl::StrCat(folder, " is in use by another process"));
}

FolderLock::~FolderLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace sluice
