#include "model/table_files/byte_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kStreamBuffer = 256 << 10;

}  // namespace

FileStream::FileStream(std::shared_ptr<FileReader> file, uint64_t begin, uint64_t end)
    : file_(std::move(file)), at_(begin), end_(end) {}

absl::StatusOr<size_t> FileStream::Read(void* to, size_t n) {
  char* out = static_cast<char*>(to);
  size_t done = 0;
  while (done < n) {
    if (begin_ < filled_) {
      const size_t some = std::min(n - done, filled_ - begin_);
      std::memcpy(out + done, buffer_.data() + begin_, some);
      begin_ += some;
      done += some;
      continue;
    }
    const uint64_t left = end_ - std::min(at_, end_);
    if (left == 0) break;
    // Large reads go past the buffer.
    const bool direct = n - done >= kStreamBuffer;
    if (!direct) buffer_.resize(kStreamBuffer);
    const size_t most = std::min<uint64_t>(direct ? n - done : kStreamBuffer, left);
    SLUICE_ASSIGN_OR_RETURN(const size_t got,
                            file_->ReadAt(at_, direct ? out + done : buffer_.data(), most));
    if (got == 0) break;  // the file has become shorter
    at_ += got;
    if (direct) {
      done += got;
    } else {
      begin_ = 0;
      filled_ = got;
    }
  }
  return done;
}

}  // namespace sluice
