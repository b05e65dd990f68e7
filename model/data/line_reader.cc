#include "model/data/line_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status_macros.h"
#include "model/data/text_form.h"

namespace sluice {
namespace {

constexpr size_t kReadBytes = 128 << 10;
constexpr uint64_t kTailBytes = 1 << 10;
constexpr uint64_t kUsualLineBytes = 4 << 10;  // few lines are longer
// Text before a place that is read to find where the first record after it starts: more than a
// record can have, and a usual line.
constexpr uint64_t kLookBackBytes = RecordRule::kMostBytes + (4 << 10);
// Room for the longest line with its line end, and for one read after it.
constexpr size_t kBufferBytes = LineReader::kMaxLineBytes + 2 + kReadBytes;

}  // namespace

LineReader::LineReader(std::unique_ptr<TextReader> text, RecordRule rule)
    : text_(std::move(text)),
      rule_(std::move(rule)),
      joins_(rule_.joins_lines()),
      buffer_(new char[kBufferBytes]) {
  text_->ExpectEnd(expected_end_);
}

void LineReader::ExpectPieces(const std::vector<std::pair<uint64_t, uint64_t>>& ranges) {
  std::vector<FileRange> pieces;
  // With the text that tells where a line starts, and the rest of the last line.
  const uint64_t before = joins_ ? kLookBackBytes : 1;
  for (const auto& [begin, end] : ranges) {
    const uint64_t from = begin - std::min(begin, before);
    pieces.push_back({from, std::min(end, UINT64_MAX - kUsualLineBytes) - from + kUsualLineBytes});
  }
  text_->ExpectPieces(std::move(pieces));
}

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
  if (joins_) {
    // Compressed text is read from the front in any case.
    if (text_->compressed()) return ReadTo(offset);
    // A longer look back finds a border even among the longest lines.
    for (uint64_t look_back = kLookBackBytes; look_back < kBufferBytes; look_back *= 4) {
      if (offset - next_offset_ <= look_back) break;
      SLUICE_ASSIGN_OR_RETURN(const bool found, SeekBackwards(offset, look_back));
      if (found) return absl::OkStatus();
      SLUICE_RETURN_IF_ERROR(Restart(0));
    }
    return ReadTo(offset);
  }
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

absl::Status LineReader::Restart(uint64_t offset) {
  begin_ = end_ = 0;
  SLUICE_RETURN_IF_ERROR(text_->SkipTo(offset));
  next_offset_ = quote_free_until_ = text_->offset();
  return absl::OkStatus();
}

absl::Status LineReader::ReadTo(uint64_t offset) {
  Line line;
  while (next_offset_ < offset) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, Next(&line));
    if (!more) break;
  }
  return absl::OkStatus();
}

absl::Status LineReader::MoveTo(uint64_t offset, uint64_t wanted) {
  SLUICE_RETURN_IF_ERROR(Restart(offset));
  previous_offset_ = wanted - std::min<uint64_t>(wanted, 1);
  started_ = wanted > 0;
  return absl::OkStatus();
}

absl::StatusOr<LineReader::End> LineReader::FindLineEnd(size_t from) {
  size_t searched = from;
  while (true) {
    const size_t have = end_ - begin_;
    // When a line grows, only its new bytes are searched.
    const char* const at = buffer_.get() + begin_;
    const void* newline = std::memchr(at + searched, '\n', have - std::min(have, searched));
    if (newline != nullptr)
      return End{static_cast<size_t>(static_cast<const char*>(newline) - at), true};
    searched = have;
    // One byte more than allowed may be the "\r" of the line end.
    if (have > kMaxLineBytes + 1) return End{have, false};
    SLUICE_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) return End{have, false};
  }
}

bool LineReader::MayGoOn(size_t end) {
  const char* const line = buffer_.get() + begin_;
  if (rule_.EndsWithEscape(line, line + end)) return true;
  if (rule_.quote == 0 || next_offset_ + end <= quote_free_until_) return false;
  const size_t from =
      quote_free_until_ > next_offset_ ? static_cast<size_t>(quote_free_until_ - next_offset_) : 0;
  // As far as the text is here: text without quotes is searched once and not line by line.
  const size_t have = end_ - begin_;
  const auto* const quote =
      static_cast<const char*>(std::memchr(line + from, rule_.quote, have - from));
  const size_t free = quote != nullptr ? quote - line : have;
  quote_free_until_ = next_offset_ + free;
  // Most lines with quotes are seen to be whole from their last quote.
  return free < end && !rule_.IsWhole(line, line + end);
}

absl::StatusOr<bool> LineReader::JoinLines(size_t record, bool open, End* end) {
  using LineEnd = RecordRule::LineEnd;
  const bool from_start = !open;
  size_t from = record, lines = 1;
  for (End last = *end;; from = last.at, last.at = 0, ++lines) {
    if (last.at == 0) {
      SLUICE_ASSIGN_OR_RETURN(last, FindLineEnd(from + 1));
    }
    const char* const text = buffer_.get() + begin_;
    const LineEnd is = rule_.Judge(text + record, text + from, text + last.at, &open);
    if (is == LineEnd::kFollowsBadQuote) return false;
    if (last.at - record > RecordRule::kMostBytes && from > record) return false;
    if (is == LineEnd::kEndsRecord || (!open && !last.line_end)) {
      // Only the whole text of a record tells what its lines look like.
      if (from_start && lines >= RecordRule::kFewestLikeRecords &&
          rule_.LooksLikeRecords(text + record, text + last.at)) {
        return false;
      }
      *end = last;
      return true;
    }
    if (!last.line_end || last.at - record > RecordRule::kMostBytes) return false;
  }
}

// A line that begins shortly before `offset` is the start of a record, or inside of a quoted cell.
// Each of these two guesses leads to a start of a record, and from there on the text alone decides.
// Where both have led to the same start, it is one; usually after a line or two. In text without
// quotes the second guess is wrong: no record is so long.
absl::StatusOr<bool> LineReader::SeekBackwards(uint64_t offset, uint64_t look_back) {
  const uint64_t from = offset - look_back;
  SLUICE_RETURN_IF_ERROR(Restart(from));
  previous_offset_ = offset - 1;
  started_ = true;
  if (next_offset_ < from) return true;  // the text ends before
  const size_t wanted = offset - from;
  End line;
  do {  // a line end after an escape may belong to a cell without quotes
    SLUICE_ASSIGN_OR_RETURN(line, FindLineEnd(line.at > 0 ? line.at + 1 : 0));
    if (!line.line_end || line.at + 1 >= wanted) return false;
  } while (rule_.EndsWithEscape(buffer_.get() + begin_, buffer_.get() + begin_ + line.at));
  size_t start = line.at + 1, inside = start;
  while (end_ - begin_ < wanted) {
    SLUICE_ASSIGN_OR_RETURN(const bool more, Fill());
    if (!more) break;
  }
  const size_t seen = std::min(end_ - begin_, wanted);
  const char* text = buffer_.get() + begin_;
  if (rule_.escape == 0 && seen - start >= RecordRule::kMostBytes &&
      std::memchr(text + start, rule_.quote, seen - start) == nullptr) {
    // All lines that begin here are records, so the last one will do.
    const void* last = memrchr(text + start, '\n', seen - 1 - start);
    if (last != nullptr) start = static_cast<const char*>(last) - text + 1;
    Consume(start);
    SLUICE_RETURN_IF_ERROR(ReadTo(offset));
    return true;
  }
  SLUICE_ASSIGN_OR_RETURN(End rest, FindLineEnd(inside));
  // The search ended at the bound on what is in memory, perhaps inside a line.
  if (!rest.line_end && end_ - begin_ > kMaxLineBytes + 1) return false;
  SLUICE_ASSIGN_OR_RETURN(const bool closed, JoinLines(inside, /*open=*/true, &rest));
  inside = closed ? rest.at + (rest.line_end ? 1 : 0) : start;
  while (start != inside) {
    size_t* const behind = start < inside ? &start : &inside;
    if (*behind >= wanted) return false;
    SLUICE_ASSIGN_OR_RETURN(End end, FindLineEnd(*behind));
    if (!end.line_end && end_ - begin_ > kMaxLineBytes + 1) return false;
    SLUICE_RETURN_IF_ERROR(JoinLines(*behind, /*open=*/false, &end).status());
    *behind = end.at + (end.line_end ? 1 : 0);
    if (!end.line_end && start != inside) return false;
  }
  Consume(start);
  SLUICE_RETURN_IF_ERROR(ReadTo(offset));
  return true;
}

absl::StatusOr<bool> LineReader::Next(Line* line) {
  line->too_long = false;
  line->line_ends = 1;
  End end;
  const char* const text = buffer_.get() + begin_;
  // Nearly every line is in the buffer as a whole.
  const void* newline = std::memchr(text, '\n', end_ - begin_);
  if (newline != nullptr) {
    end = {static_cast<size_t>(static_cast<const char*>(newline) - text), true};
  } else {
    SLUICE_ASSIGN_OR_RETURN(end, FindLineEnd(end_ - begin_));
    if (end_ == begin_) return false;
  }
  const bool look = joins_ && (rule_.escape != 0 || next_offset_ + end.at > quote_free_until_);
  if (look && end.at <= kMaxLineBytes && MayGoOn(end.at)) {
    const size_t first = end.at;
    SLUICE_RETURN_IF_ERROR(JoinLines(0, /*open=*/false, &end).status());
    if (end.at > first) {
      const char* const whole = buffer_.get() + begin_;
      line->line_ends += std::count(whole, whole + end.at, '\n');
    }
  }
  line->data = buffer_.get() + begin_;
  line->offset = next_offset_;
  line->size = end.at;
  previous_offset_ = next_offset_;
  started_ = true;
  // The whole text is one line, and has line ends of another kind only.
  if (!end.line_end && next_offset_ == 0 && line->size > 1 &&
      std::memchr(line->data, '\r', line->size - 1) != nullptr &&
      std::memchr(line->data, '\n', line->size) == nullptr) {
    return LinesEndInCr(text_->path());
  }
  Consume(line->size + (end.line_end ? 1 : 0));
  if (line->size > 0 && line->data[line->size - 1] == '\r') --line->size;
  line->too_long = line->size > kMaxLineBytes;
  // The rest of the line must not be taken for a line of its own.
  if (line->too_long && !end.line_end) SLUICE_RETURN_IF_ERROR(DropLine());
  return true;
}

}  // namespace sluice
