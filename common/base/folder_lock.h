// An advisory lock on a folder, which at most one holder has and which ends with its process.
//
// It leaves no file behind.
//
// Thread safety: one thread.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace sluice {

class FolderLock {
 public:
  // ALREADY_EXISTS when another holder has it; NOT_FOUND when the folder cannot be opened. Where
  // the file system has no locks, every call succeeds.
  static absl::StatusOr<FolderLock> Take(const std::string& folder, Env* env = Env::Real());

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
