// Bytes that are read from front to back.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/env.h"

namespace sluice {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Reads n bytes, or fewer at the end, and returns their number. Errors do not name the file.
  virtual absl::StatusOr<size_t> Read(void* to, size_t n) = 0;
};

// The bytes [begin, end) of a file, through a buffer. Several streams may share the file in one
// thread.
class FileStream : public ByteStream {
 public:
  FileStream(std::shared_ptr<FileReader> file, uint64_t begin, uint64_t end);
  absl::StatusOr<size_t> Read(void* to, size_t n) override;

 private:
  const std::shared_ptr<FileReader> file_;
  uint64_t at_;  // the next byte that is not in the buffer
  const uint64_t end_;
  std::vector<char> buffer_;
  size_t begin_ = 0, filled_ = 0;  // unread bytes of the buffer
};

}  // namespace sluice
