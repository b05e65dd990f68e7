// A regular file without a folder, whose path every reader in this process can open.
//
// Thread safety: one thread.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "tests/fuzz/fuzz.h"

namespace sluice {

class MemoryFile {
 public:
  explicit MemoryFile(const std::string& bytes) : fd_(memfd_create("input", MFD_CLOEXEC)) {
    FUZZ_CHECK(fd_ >= 0);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t n = write(fd_, bytes.data() + done, bytes.size() - done);
      FUZZ_CHECK(n > 0);
      done += static_cast<size_t>(n);
    }
  }
  ~MemoryFile() { close(fd_); }
  MemoryFile(const MemoryFile&) = delete;
  MemoryFile& operator=(const MemoryFile&) = delete;

  std::string path() const { return "/proc/self/fd/" + std::to_string(fd_); }

 private:
  const int fd_;
};

}  // namespace sluice
