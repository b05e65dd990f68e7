// Tells where the records of delimited text end: a line end inside of a quoted cell, or after an
// escape, belongs to the cell (RFC 4180).
//
// Invariants: a quote opens a cell only where a cell begins, so the text after a delimiter or at
// the start of a record decides, and nothing before it. A quote closes a cell only before a
// delimiter or the end of a line. A record of several lines has at most kMostBytes, and its lines
// do not look like records themselves (LooksLikeRecords). Text that breaks one of these rules is
// cut after its first line, which is then a malformed record. So a lone quote spoils one line and
// not the rest of a file, and where a record begins can be found from the text shortly before it.
//
// Thread safety: immutable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace sluice {

struct RecordRule {
  static constexpr size_t kMostBytes = 64 << 10;
  static constexpr size_t kFewestLikeRecords = 4;  // fewer lines never LooksLikeRecords

  std::string delimiter = ",";
  char quote = 0;   // 0: cells are not quoted
  char escape = 0;  // 0: none
  bool trim = true;
  std::string comment_prefix;  // lines that begin with it have no cells
  bool merge = false;          // several delimiters in a row count as one
  // Cells that a record may have. The header of a file is read before they are known.
  size_t fewest_cells = 0, most_cells = SIZE_MAX;

  // False: every line end ends a record.
  bool joins_lines() const { return quote != 0 || escape != 0; }
  // Whether the line that ends at `end` needs a closer look. Quotes are the caller's to find.
  bool EndsWithEscape(const char* line, const char* end) const;
  // Whether the last quote of the line [line, end), which has one, shows that no quoted cell is
  // open at its end. Cheap. True means that no cell is open; false means unknown.
  bool IsWhole(const char* line, const char* end) const;
  // What the line end at `end` is to the record that begins at `record`. `from`: the start of the
  // line, where a quoted cell was open if *open. Sets *open.
  enum class LineEnd { kEndsRecord, kIsInRecord, kFollowsBadQuote };
  LineEnd Judge(const char* record, const char* from, const char* end, bool* open) const;
  // Whether the lines of [record, end), joined by quotes, are rather a record each: two cells with
  // a lone quote also look like one quoted cell that holds the lines between them. True when the
  // first line, the last one and most of those between them (at least two, with four delimiters in
  // all) have the same number of cells, which is one that a record may have. In a record of several
  // lines the first line lacks the cells after the quoted one, and the last line those before it.
  bool LooksLikeRecords(const char* record, const char* end) const;

 private:
  bool AtDelimiter(const char* at, const char* end) const;
  // Whether a cell that is closed before `at` ends there. A line ends at `end`.
  bool CellEnds(const char* at, const char* end) const;
  // The number of cells of a line. A quote that is not closed in it is text.
  size_t CountCells(const char* line, const char* end) const;
  // After the quoted cell that begins at `at`; nullptr when it is not closed before `end`.
  const char* AfterQuoted(const char* at, const char* end) const;
  bool Escaped(const char* record, const char* at) const;
  // Whether the bytes of a delimiter before `at` are one.
  bool EndsDelimiter(const char* record, const char* at) const;
  // Whether the quote at `at`, outside of a quoted cell, opens one.
  bool Opens(const char* record, const char* at) const;
};

}  // namespace sluice
