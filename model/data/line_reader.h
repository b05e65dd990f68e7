// Reads the lines of a text file with their offsets, in one bounded buffer. With a RecordRule it
// reads records: lines together with the line ends inside of their quoted cells. A record is called
// a line below.
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
#include "model/data/record_rule.h"
#include "model/data/text_reader.h"

namespace sluice {

class LineReader {
 public:
  static constexpr size_t kMaxLineBytes = 1 << 20;

  struct Line {
    char* data = nullptr;  // without "\n" or "\r\n"
    size_t size = 0;
    uint64_t offset = 0;
    bool too_long = false;   // more than kMaxLineBytes; `data` must then not be read
    uint64_t line_ends = 1;  // of the text in this line, its own included
    std::string_view text() const { return {data, size}; }
  };

  // `text` is at its beginning.
  explicit LineReader(std::unique_ptr<TextReader> text, RecordRule rule = {});

  const TextReader& text() const { return *text_; }
  uint64_t next_offset() const { return next_offset_; }
  // True when the reader can still find the first line that starts at or after `offset`.
  bool CanSeek(uint64_t offset) const { return !started_ || offset > previous_offset_; }
  // Moves to the first line that starts at or after `offset`. Where lines are joined, the text
  // shortly before `offset` tells, or, if that leaves it open, the whole text before. REQUIRES:
  // CanSeek(offset).
  absl::Status Seek(uint64_t offset);
  // Moves to `offset`, where a line is known to start, and the one before it starts before
  // `wanted`.
  absl::Status MoveTo(uint64_t offset, uint64_t wanted);
  bool joins_lines() const { return joins_; }
  // Says how many cells the records that follow may have.
  void ExpectCells(size_t fewest, size_t most) {
    rule_.fewest_cells = fewest;
    rule_.most_cells = most;
  }
  // Promises that no line that starts at or after `offset` is wanted, so that little text after it
  // is read.
  void ExpectEnd(uint64_t offset) {
    expected_end_ = offset;
    text_->ExpectEnd(offset);
  }
  // Says in which ascending ranges the wanted lines start, each with its begin and end.
  void ExpectPieces(const std::vector<std::pair<uint64_t, uint64_t>>& ranges);
  // False at the end of the text.
  absl::StatusOr<bool> Next(Line* line);

 private:
  // Reads more text to the end of the buffer. False at the end of the text.
  // REQUIRES: the buffer has room.
  absl::StatusOr<bool> Fill();
  // An end of a line, as indices from begin_: its line end, or the end of the text.
  struct End {
    size_t at = 0;
    bool line_end = false;  // false: the text ends, or no line end is within kMaxLineBytes
  };
  // The first line end at or after `from`.
  absl::StatusOr<End> FindLineEnd(size_t from);
  // Whether the line [begin_, begin_ + end) has a quote or ends with an escape.
  bool MayGoOn(size_t end);
  // Moves *end from the first line of the record at index `record` to the last one. `open`: the
  // record is the rest of one, inside of a quoted cell. False, with *end unchanged, when the lines
  // are no record by the rule.
  absl::StatusOr<bool> JoinLines(size_t record, bool open, End* end);
  // Seeks by reading all lines from here.
  absl::Status ReadTo(uint64_t offset);
  // Seeks with the help of `look_back` bytes before `offset`. False when they leave it open; the
  // reader is then somewhere before `offset`.
  absl::StatusOr<bool> SeekBackwards(uint64_t offset, uint64_t look_back);
  // Drops all text and goes on at `offset`.
  absl::Status Restart(uint64_t offset);
  // Drops text up to and including the next line end.
  absl::Status DropLine();
  void Consume(size_t bytes) {
    begin_ += bytes;
    next_offset_ += bytes;
  }

  const std::unique_ptr<TextReader> text_;
  RecordRule rule_;
  const bool joins_;
  const std::unique_ptr<char[]> buffer_;
  size_t begin_ = 0, end_ = 0;    // text in the buffer that is not returned yet
  uint64_t next_offset_ = 0;      // of buffer_[begin_]
  uint64_t previous_offset_ = 0;  // meaningful when started_
  bool started_ = false;
  // From next_offset_ to this offset there is no quote.
  uint64_t quote_free_until_ = 0;
  uint64_t expected_end_ = UINT64_MAX;
};

}  // namespace sluice
