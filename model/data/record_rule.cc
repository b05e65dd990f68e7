#include "model/data/record_rule.h"

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

bool RecordRule::GoesOn(const char* record, const char* from, const char* end, bool* open) const {
  if (!comment_prefix.empty() && !*open && from == record &&
      std::string_view(record, end - record).substr(0, comment_prefix.size()) == comment_prefix)
    return false;
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
    } else {
      *open = false;
    }
  }
  return *open || Escaped(record, end);
}

}  // namespace sluice
