// A folder that one holder at a time has to itself: an advisory lock that ends with its process and
// leaves no file.
//
// Thread safety: safe to move and destroy by one thread.
#pragma once

#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace sluice {

class FolderLock {
 public:
  // ALREADY_EXISTS when another holder has it. Where the file system has no locks it is nobody's.
  static absl::StatusOr<FolderLock> Take(const std::string& folder);

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
