// An advisory lock on a file, which at most one process holds and which ends with that process.
//
// The file stays. Processes that do not ask for the lock may still read and write it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace sluice {

class FileLock {
 public:
  // Creates the file when it is missing, and leaves its contents alone. ALREADY_EXISTS: another
  // process holds the lock; *holder, when given, is its pid, or 0 when the system does not say.
  // INVALID_ARGUMENT: the file cannot be opened. Where the file system has no locks, every call
  // succeeds.
  static absl::StatusOr<FileLock> Take(const std::string& path, uint32_t* holder = nullptr);

  // The pid of the process that has the lock, without trying to take it; 0: nobody has it, or the
  // system does not say.
  static uint32_t HolderOf(const std::string& path);

  FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileLock& operator=(FileLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

// The same for a folder. It leaves no file behind.
//
// Thread safety: one thread.
class FolderLock {
 public:
  // ALREADY_EXISTS when another holder has it; NOT_FOUND when the folder cannot be opened. Where
  // the file system has no locks, every call succeeds.
  static absl::StatusOr<FolderLock> Take(const std::string& folder, Env* env);

  FolderLock(FolderLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FolderLock& operator=(FolderLock&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FolderLock();

 private:
  explicit FolderLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace sluice
