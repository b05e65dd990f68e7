#include "common/security/unfinished_pem.h"

#include <fcntl.h>
#include <openssl/err.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/env.h"
#include "common/base/random_id.h"

namespace sluice {
namespace {

// Whether nobody removed the file before it was locked.
bool HasName(int fd) {
  struct stat at = {};
  return ::fstat(fd, &at) == 0 && at.st_nlink > 0;
}

// Locks are advisory: where the file system has none, the caller goes on, and nobody removes
// unfinished files.
bool LockIsTaken(int fd) { return ::flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

}  // namespace

UnfinishedPem::~UnfinishedPem() {
  if (!unfinished_.empty()) ::unlink(unfinished_.c_str());
}

bool UnfinishedPem::Create() {
  // Another process may take the file for a leftover until it is locked; then the next one is used.
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    const std::string name =
        absl::StrCat(path_, ".", ::getpid(), ".", RandomId(), kUnfinishedSuffix);
    // Nobody else may open the file, not even before it has its final mode.
    const int fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return false;
    unfinished_ = name;
    file_.reset(::fdopen(fd, "w"));
    if (file_ == nullptr) {
      ::close(fd);
      return false;
    }
    if (!LockIsTaken(fd) && HasName(fd)) return true;
    ::unlink(name.c_str());
  }
  errno = EAGAIN;
  return false;
}

absl::Status UnfinishedPem::Fill(const std::function<bool(FILE*)>& write) {
  if (!Create()) return Failed("create");
  if (!write(file_.get())) {
    char reason[256] = "";
    ERR_error_string_n(ERR_get_error(), reason, sizeof(reason));
    ERR_clear_error();
    return absl::InternalError(absl::StrCat("OpenSSL cannot write ", path_, ": ", reason));
  }
  const int fd = ::fileno(file_.get());
  // The mode must not depend on the umask.
  if (std::fflush(file_.get()) != 0 || ::fchmod(fd, mode_) != 0 || ::fsync(fd) != 0)
    return Failed("write");
  return absl::OkStatus();
}

absl::Status UnfinishedPem::Replace() { return Env::Real()->RenameFile(unfinished_, path_); }

absl::Status UnfinishedPem::FinishNew(Link link) {
  if (link(unfinished_.c_str(), path_.c_str()) == 0) return absl::OkStatus();
  // File systems without hard links answer link(2) so; ENOSYS comes from those in user space.
  const bool no_links = errno == EPERM || errno == EOPNOTSUPP || errno == EMLINK || errno == ENOSYS;
  if (no_links &&
      ::renameat2(AT_FDCWD, unfinished_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) == 0) {
    return absl::OkStatus();
  }
  if (errno == EEXIST)
    return absl::AbortedError(absl::StrCat(path_, " was made meanwhile; run the command again"));
  if (no_links && (errno == EINVAL || errno == ENOSYS)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the file system of ", path_,
        " can give a new file its name only by replacing what has the name, which could lose a "
        "key; give a folder on another file system and copy the files from there"));
  }
  return Failed("give its name to");
}

absl::Status UnfinishedPem::Failed(absl::string_view operation) const {
  return absl::ErrnoToStatus(errno, absl::StrCat(operation, " ", path_));
}

void RemoveUnfinishedPems(const std::string& folder) {
  const auto names = Env::Real()->List(folder);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const std::string finished = FinishedName(name);
    if (!absl::EndsWith(finished, ".pem") && !absl::EndsWith(finished, ".key")) continue;
    const std::string path = absl::StrCat(folder, "/", name);
    // Some file systems lock only files that are open for writing. A pipe would block.
    const int fd = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0) continue;
    struct stat at = {};
    // Removed under the lock: its writer notices, if it has not locked the file yet.
    if (::fstat(fd, &at) == 0 && S_ISREG(at.st_mode) && ::flock(fd, LOCK_EX | LOCK_NB) == 0)
      ::unlink(path.c_str());
    ::close(fd);
  }
}

}  // namespace sluice
