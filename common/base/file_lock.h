// A file that one process at a time has to itself: an advisory lock that ends with its process. The
// file stays, and may be read and written by anybody who does not ask for the lock.
//
// Thread safety: safe to move and destroy by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace sluice {

class FileLock {
 public:
  // Makes the file when it is missing, and leaves what it holds. ALREADY_EXISTS: another has it;
  // *holder, when given, is its pid, or 0 when the system does not say. INVALID_ARGUMENT: the file
  // cannot be opened. Where the file system has no locks it is nobody's.
  static absl::StatusOr<FileLock> Take(const std::string& path, uint32_t* holder = nullptr);

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

}  // namespace sluice
