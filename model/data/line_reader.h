// Reads the lines of a text file with their offsets, in one bounded buffer.
//
// Invariants: next_offset() is where a line starts, or the end of the text. The line before it
// starts at previous_offset_ or earlier, so the reader can continue with any piece that begins
// after previous_offset_.
//
// Memory: one buffer slightly larger than kMaxLineBytes. A line is valid, and may be changed, until
// the next call.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/data/text_reader.h"

namespace sluice {

class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = 1 << 20;

  struct Line {
    char* data = nullptr;  // without "\n" or "\r\n"
    size_t size = 0;
    uint64_t offset = 0;
    bool too_long = false;  // more than kMaxLineBytes; `data` must then not be read
    std::string_view text() const { return {data, size}; }
  };

  // `text` is at its beginning.
  explicit LineReader(std::unique_ptr<TextReader> text);

  const TextReader& text() const { return *text_; }
  uint64_t next_offset() const { return next_offset_; }
  // True when the reader can still find the first line that starts at or after `offset`.
  bool CanSeek(uint64_t offset) const { return !started_ || offset > previous_offset_; }
  // Moves to the first line that starts at or after `offset`.
  // REQUIRES: CanSeek(offset).
  absl::Status Seek(uint64_t offset);
  // Promises that no line that starts at or after `offset` is wanted, so that little text after it
  // is read.
  void ExpectEnd(uint64_t offset) { expected_end_ = offset; }
  // False at the end of the text.
  absl::StatusOr<bool> Next(Line* line);

 private:
  // Reads more text to the end of the buffer. False at the end of the text.
  // REQUIRES: the buffer has room.
  absl::StatusOr<bool> Fill();
  // Drops text up to and including the next line end.
  absl::Status DropLine();
  void Consume(size_t bytes) {
    begin_ += bytes;
    next_offset_ += bytes;
  }

  const std::unique_ptr<TextReader> text_;
  const std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;    // text in the buffer that is not returned yet
  uint64_t next_offset_ = 0;      // of buffer_[begin_]
  uint64_t previous_offset_ = 0;  // meaningful when started_
  bool started_ = false;
  uint64_t expected_end_ = UINT64_MAX;
};

}  // namespace sluice
