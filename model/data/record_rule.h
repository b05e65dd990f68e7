// Tells where the records of delimited text end: a line end inside of a quoted cell, or after an
// escape, belongs to the cell (RFC 4180).
//
// Invariants: a quote opens a cell only where a cell begins, so the text after a delimiter or at
// the start of a record decides, and nothing before it. A record of several lines has at most
// kMostBytes. When a quoted cell has no closing quote within that, its first line alone is a record
// (a malformed one). So a lone quote spoils one line and not the rest of a file, and where a record
// begins can be found from the text shortly before it.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <string>

namespace sluice {

struct RecordRule {
  static constexpr size_t kMostBytes = 64 << 10;

  std::string delimiter = ",";
  char quote = 0;   // 0: cells are not quoted
  char escape = 0;  // 0: none
  bool trim = true;
  std::string comment_prefix;  // lines that begin with it have no cells

  // False: every line end ends a record.
  bool joins_lines() const { return quote != 0 || escape != 0; }
  // Whether the line that ends at `end` needs a closer look. Quotes are the caller's to find.
  bool EndsWithEscape(const char* line, const char* end) const;
  // Whether the last quote of the line [line, end), which has one, shows that no quoted cell is
  // open at its end. Cheap. True means that no cell is open; false means unknown.
  bool IsWhole(const char* line, const char* end) const;
  // Whether the record that begins at `record` goes on after the line end at `end`, where a quoted
  // cell was open at `from` if *open. Sets *open.
  bool GoesOn(const char* record, const char* from, const char* end, bool* open) const;

 private:
  bool Escaped(const char* record, const char* at) const;
  // Whether the bytes of a delimiter before `at` are one.
  bool EndsDelimiter(const char* record, const char* at) const;
  // Whether the quote at `at`, outside of a quoted cell, opens one.
  bool Opens(const char* record, const char* at) const;
};

}  // namespace sluice
