#include "model/data/line_reader.h"

#include <algorithm>
#include <cstring>

#include "common/base/status_macros.h"

namespace sluice {
namespace {

constexpr size_t kReadBytes = 128 << 10;
constexpr uint64_t kTailBytes = 1 << 10;
// Room for the longest line with its line end, and for one read after it.
constexpr size_t kBufferBytes = LineReader::kMaxLineBytes + 2 + kReadBytes;

}  // namespace

LineReader::LineReader(std::unique_ptr<TextReader> text)
    : text_(std::move(text)), buffer_(new char[kBufferBytes]) {}

absl::StatusOr<bool> LineReader::Fill() {
  // Moved only when the room runs out, not after each line.
  if (kBufferBytes - end_ < kReadBytes) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  // After the expected end only the rest of one line is wanted: read little first, then twice as
  // much each time.
  const uint64_t at = next_offset_ + (end_ - begin_);
  const uint64_t wanted =
      at < expected_end_ ? expected_end_ - at : std::max(kTailBytes, at - expected_end_);
  const size_t room = std::min<uint64_t>({kReadBytes, kBufferBytes - end_, wanted});
  SLUICE_ASSIGN_OR_RETURN(const size_t got, text_->Read(buffer_.get() + end_, room));
  end_ += got;
  return got > 0;
}

absl::Status LineReader::DropLine() {
  while (true) {
    const void* newline = std::memchr(buffer_.get() + begin_, '\n', end_ - begin_);
    if (newline != nullptr) {
      Consume(static_cast<const char*>(newline) - (buffer_.get() + begin_) + 1);
      return absl::OkStatus();
    }
    Consume(end_ - begin_);
    begin_ = end_ = 0;
    SLUICE_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) return absl::OkStatus();
  }
}

absl::Status LineReader::Seek(uint64_t offset) {
  if (offset <= next_offset_) return absl::OkStatus();
  // The byte before `offset` decides: if it ends a line, the next one starts at `offset`.
  const uint64_t before = offset - 1;
  if (before <= next_offset_ + (end_ - begin_)) {
    Consume(before - next_offset_);
  } else {
    begin_ = end_ = 0;
    SLUICE_RETURN_IF_ERROR(text_->SkipTo(before));
    next_offset_ = text_->offset();
  }
  previous_offset_ = before;  // the previous line starts there at the latest
  started_ = true;
  return DropLine();
}

absl::StatusOr<bool> LineReader::Next(Line* line) {
  size_t searched = 0;
  line->too_long = false;
  const void* newline = nullptr;
  while (true) {
    const size_t have = end_ - begin_;
    // When a line grows, only its new bytes are searched.
    newline = std::memchr(buffer_.get() + begin_ + searched, '\n', have - searched);
    searched = have;
    if (newline != nullptr) break;
    // One byte more than allowed may be the "\r" of the line end.
    if (have > kMaxLineBytes + 1) break;
    SLUICE_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) break;
  }
  if (end_ == begin_) return false;
  line->data = buffer_.get() + begin_;
  line->offset = next_offset_;
  line->size = newline != nullptr ? static_cast<const char*>(newline) - line->data : end_ - begin_;
  previous_offset_ = next_offset_;
  started_ = true;
  if (newline != nullptr) {
    Consume(line->size + 1);
  } else {
    Consume(line->size);
  }
  if (line->size > 0 && line->data[line->size - 1] == '\r') --line->size;
  line->too_long = line->size > kMaxLineBytes;
  // The rest of the line must not be taken for a line of its own.
  if (line->too_long && newline == nullptr) SLUICE_RETURN_IF_ERROR(DropLine());
  return true;
}

}  // namespace sluice
