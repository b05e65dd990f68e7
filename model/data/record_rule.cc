#include "model/data/record_rule.h"

#include <algorithm>
#include <cstring>
#include <string_view>

namespace sluice {

bool RecordRule::Escaped(const char* record, const char* at) const {
  if (escape == 0) return false;
  bool escaped = false;
  // Two escapes in a row are one escaped escape.
  while (at > record && *--at == escape) escaped = !escaped;
  return escaped;
}

bool RecordRule::EndsWithEscape(const char* line, const char* end) const {
  return escape != 0 && end > line && end[-1] == escape;
}

bool RecordRule::IsWhole(const char* line, const char* end) const {
  const auto* const last = static_cast<const char*>(memrchr(line, quote, end - line));
  if (last == nullptr || last == line || escape != 0) return false;
  // Behind such a character the quote does not open a cell, and is not the second of two. So it
  // closes the cell that is open, or is part of a cell that is not quoted.
  const char before = last[-1];
  return before != quote && before != ' ' && before != '\t' && before != '\xBF' &&
         delimiter.find(before) == std::string::npos;
}

bool RecordRule::EndsDelimiter(const char* record, const char* at) const {
  const size_t n = delimiter.size();
  const auto is_delimiter = [&](const char* from) {
    return from >= record && from + n <= at && std::memcmp(from, delimiter.data(), n) == 0;
  };
  const char* first = at - n;
  // Such as "::" twice in ":::". Cells are cut off from left to right, so the first one counts.
  for (const char* earlier = first;
       earlier > record && static_cast<size_t>(first - earlier) + 1 < n;) {
    if (is_delimiter(--earlier)) first = earlier;
  }
  while (first + n < at) first += is_delimiter(first) && !Escaped(record, first) ? n : 1;
  return first + n == at && !Escaped(record, first);
}

bool RecordRule::Opens(const char* record, const char* at) const {
  const size_t n = delimiter.size();
  while (true) {
    if (at == record) return true;
    const size_t before = at - record;
    if (before >= n && std::memcmp(at - n, delimiter.data(), n) == 0)
      return n == 1 ? !Escaped(record, at - 1) : EndsDelimiter(record, at);
    // A byte order mark before the first cell is no part of it.
    if (before == 3 && std::memcmp(record, "\xEF\xBB\xBF", 3) == 0) return true;
    if (!trim || (at[-1] != ' ' && at[-1] != '\t')) return false;
    --at;
  }
}

bool RecordRule::AtDelimiter(const char* at, const char* end) const {
  const size_t n = delimiter.size();
  return static_cast<size_t>(end - at) >= n && *at == delimiter[0] &&
         (n == 1 || std::memcmp(at, delimiter.data(), n) == 0);
}

bool RecordRule::CellEnds(const char* at, const char* end) const {
  while (trim && at < end && (*at == ' ' || *at == '\t') && !AtDelimiter(at, end)) ++at;
  return at == end || AtDelimiter(at, end) || (at + 1 == end && *at == '\r');
}

RecordRule::LineEnd RecordRule::Judge(const char* record, const char* from, const char* end,
                                      bool* open) const {
  if (!comment_prefix.empty() && !*open && from == record &&
      std::string_view(record, end - record).substr(0, comment_prefix.size()) == comment_prefix)
    return LineEnd::kEndsRecord;
  const char* at = from;
  while (quote != 0 && at < end) {
    const auto* const found = static_cast<const char*>(std::memchr(at, quote, end - at));
    if (found == nullptr) break;
    at = found + 1;
    if (!*open) {
      *open = Opens(record, found);
    } else if (Escaped(record, found)) {
      continue;
    } else if (at < end && *at == quote) {
      ++at;  // a doubled quote
    } else if (!CellEnds(at, end)) {
      return LineEnd::kFollowsBadQuote;
    } else {
      *open = false;
    }
  }
  return *open || Escaped(record, end) ? LineEnd::kIsInRecord : LineEnd::kEndsRecord;
}

const char* RecordRule::AfterQuoted(const char* at, const char* end) const {
  while (trim && at < end && (*at == ' ' || *at == '\t') && !AtDelimiter(at, end)) ++at;
  if (quote == 0 || at == end || *at != quote) return nullptr;
  for (++at; at < end; ++at) {
    if (escape != 0 && *at == escape) {
      ++at;
    } else if (*at == quote) {
      if (at + 1 == end || at[1] != quote) return CellEnds(at + 1, end) ? at + 1 : nullptr;
      ++at;
    }
  }
  return nullptr;
}

size_t RecordRule::CountCells(const char* line, const char* end) const {
  const char* at = line;
  if (end - at >= 3 && std::memcmp(at, "\xEF\xBB\xBF", 3) == 0) at += 3;
  while (merge && AtDelimiter(at, end)) at += delimiter.size();
  for (size_t cells = 1;; ++cells) {
    const char* const after = AfterQuoted(at, end);
    if (after != nullptr) at = after;
    for (; at < end && !AtDelimiter(at, end); ++at) {
      if (escape != 0 && *at == escape && at + 1 < end) ++at;
    }
    if (at >= end) return cells;
    at += delimiter.size();
    while (merge && AtDelimiter(at, end)) at += delimiter.size();
    if (merge && at == end) return cells;  // delimiters at the end of a line are no cell
  }
}

bool RecordRule::LooksLikeRecords(const char* record, const char* end) const {
  constexpr size_t kFewestDelimiters = 4;
  const auto line_end = [end](const char* from) {
    const void* const at = std::memchr(from, '\n', end - from);
    return at == nullptr ? end : static_cast<const char*>(at);
  };
  const char* const first_end = line_end(record);
  if (first_end == end) return false;
  const auto* const before_last = static_cast<const char*>(memrchr(record, '\n', end - record));
  const size_t cells = CountCells(record, first_end);
  if (cells < std::max<size_t>(fewest_cells, 2) || cells > most_cells ||
      CountCells(before_last + 1, end) != cells) {
    return false;
  }
  size_t inner = 0, alike = 0;
  for (const char* at = first_end + 1; at < before_last; ++inner) {
    const char* const to = line_end(at);
    alike += CountCells(at, to) == cells;
    at = to + 1;
  }
  return inner + 2 >= kFewestLikeRecords && inner * (cells - 1) >= kFewestDelimiters &&
         2 * alike > inner;
}

}  // namespace sluice
