#include "cli/screen/wrap.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace sluice::cli {
namespace {

// Bytes that continue a character of UTF-8 take no column, nor do the codes of colours.
size_t ColumnsOf(absl::string_view text) {
  size_t columns = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\x1b') {
      while (i < text.size() && text[i] != 'm') ++i;
    } else if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) {
      ++columns;
    }
  }
  return columns;
}

bool StaysWhole(absl::string_view line, size_t indent) {
  return absl::StartsWith(line.substr(indent), "sluice ") || absl::StrContains(line, '\r') ||
         absl::StrContains(line, "\x1b[K") || absl::StrContains(line, "\x1b[H");
}

}  // namespace

std::string Wrapped(absl::string_view line, size_t width) {
  // sluice status --watch clears the screen before its first line, and a line that replaces the
  // live line erases that first.
  for (const absl::string_view clear : {"\x1b[H\x1b[2J", "\r\x1b[K", "\r"}) {
    if (absl::StartsWith(line, clear))
      return absl::StrCat(clear, Wrapped(line.substr(clear.size()), width));
  }
  if (ColumnsOf(line) <= width) return std::string(line);
  const size_t indent = std::min(line.find_first_not_of(' '), line.size());
  if (StaysWhole(line, indent)) return std::string(line);
  const std::string next_line(std::min(indent + 2, width / 2), ' ');
  std::string text(line.substr(0, indent));
  size_t column = indent;
  bool begins = true;  // the present line has no word yet
  line.remove_prefix(indent);
  while (!line.empty()) {
    // A word with the blanks before it.
    const size_t word = std::min(line.find_first_not_of(' '), line.size());
    const size_t end = std::min(line.find(' ', word), line.size());
    const absl::string_view blanks = line.substr(0, word), letters = line.substr(word, end - word);
    const size_t columns = ColumnsOf(letters);
    if (!begins && column + word + columns > width) {
      absl::StrAppend(&text, "\n", next_line, letters);
      column = next_line.size() + columns;
    } else {
      absl::StrAppend(&text, blanks, letters);
      column += word + columns;
    }
    begins = false;
    line.remove_prefix(end);
  }
  return text;
}

}  // namespace sluice::cli
