#include "common/base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace sluice {
namespace {

// The pid of the process that holds the lock on the file, or 0 when it is unknown.
//
// Format of a line in /proc/locks: "1: FLOCK  ADVISORY  WRITE 4711 08:01:131 0 EOF". 4711 is the
// pid and 131 the inode. The device (08:01) is not compared: some file systems list another one
// than stat reports.
uint32_t HolderOf(const struct stat& info) {
  const std::string inode = absl::StrCat(":", info.st_ino);
  std::ifstream in("/proc/locks");
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    uint32_t pid = 0;
    if (words.size() > 5 && words[1] == "FLOCK" && absl::EndsWith(words[5], inode) &&
        absl::SimpleAtoi(words[4], &pid)) {
      return pid;
    }
  }
  return 0;
}

constexpr int kMostTries = 100;

bool HasFile(const std::string& path, int fd) {
  struct stat named, opened;
  return stat(path.c_str(), &named) == 0 && fstat(fd, &opened) == 0 &&
         named.st_dev == opened.st_dev && named.st_ino == opened.st_ino;
}

}  // namespace

absl::StatusOr<FileLock> FileLock::Take(const std::string& path, uint32_t* holder) {
  FileLock lock(-1);
  for (int tries = 0;; ++tries) {
    const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot write ", path, ": ", std::strerror(errno)));
    }
    lock = FileLock(fd);
    // Errors other than EWOULDBLOCK come from file systems without locks.
    if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) break;
    // Between open and flock the holder may have renamed its file and locked the next one there.
    if (tries >= kMostTries || HasFile(path, fd)) return lock;
  }
  const int fd = lock.fd_;
  struct stat info;
  const uint32_t pid = fstat(fd, &info) == 0 ? sluice::HolderOf(info) : 0;
  if (holder != nullptr) *holder = pid;
  return absl::AlreadyExistsError(
      absl::StrCat(path, " is in use by ", pid > 0 ? absl::StrCat("pid ", pid) : "a process"));
}

uint32_t FileLock::HolderOf(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0 ? sluice::HolderOf(info) : 0;
}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

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
