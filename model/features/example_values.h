// The cells of one example, as text or typed, and what single ones mean.
//
// Both kinds of cells have the same code, compiled for each, so that text costs nothing for the
// other.
//
// Thread safety: free functions and plain data.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "model/features/cell.h"
#include "model/features/data_summary.h"
#include "model/features/example_cells.h"
#include "model/features/value_keys.h"

namespace sluice {

// In the order of FeatureSchema::columns(): std::string_view for text, or Cell.
template <typename Value>
struct ExampleValues {
  const Value* values;
  const bool* missing;
  DataCounts* counts;  // counts the cell contents; null: they are not counted
};
using ExampleText = ExampleValues<std::string_view>;

// The functions up to kSeveralValues classify a cell; text stands for one value.
inline bool IsList(std::string_view) { return false; }
inline bool IsList(const Cell& cell) { return cell.kind() == Cell::Kind::kList; }

inline bool IsInstant(std::string_view) { return false; }
inline bool IsInstant(const Cell& cell) { return cell.kind() == Cell::Kind::kInstant; }
inline int64_t InstantOf(std::string_view) { return 0; }
inline int64_t InstantOf(const Cell& cell) { return cell.integer(); }

inline bool HasText(std::string_view cell) { return !cell.empty(); }
inline bool HasText(const Cell&) { return true; }

inline constexpr char kSeveralValues[] = "has several values, and only one can be read here";

// The decimal text of a value that is a category. False for a date, a fraction, and a double that
// may not be the number that was written.
inline bool CategoryText(std::string_view cell, NumberText*, std::string_view* text) {
  *text = cell;
  return true;
}
inline bool CategoryText(const Cell& cell, NumberText* memory, std::string_view* text) {
  if (IsInstant(cell)) return false;
  if (cell.kind() != Cell::Kind::kDouble) {
    *text = TextOf(cell, memory);
    return true;
  }
  const double value = cell.number();
  if (!IsWhole(value)) return false;
  *text = TextOf(Cell::Integer(static_cast<int64_t>(value)), memory);
  return true;
}

// INVALID_ARGUMENT that names feature, column and cell.
template <typename Value>
absl::Status CellError(const std::string& feature, const std::string& column, const Value& cell,
                       std::string_view problem) {
  NumberText memory;
  return absl::InvalidArgumentError(absl::StrCat("feature \"", feature, "\", column \"", column,
                                                 "\": ", QuotedCell(TextOf(cell, &memory)), " ",
                                                 std::string(problem)));
}

// Without blanks around it, if `trim`.
inline std::string_view Trimmed(std::string_view text, bool trim) {
  if (!trim) return text;
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace sluice
