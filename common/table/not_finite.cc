#include "common/table/not_finite.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"

namespace sluice {
namespace {

absl::Status NotFinite(const TableLayout& table, const std::string& where) {
  return absl::OutOfRangeError(absl::StrCat(
      "table '", table.name(), "': ", where,
      " became NaN or infinite: the training diverged; lower the learning rate, or clip gradients "
      "(clip_value, clip_row_norm), and continue from an earlier checkpoint"));
}

}  // namespace

size_t FirstNotFinite(const UnalignedFloat* values, size_t n) {
  size_t i = 0;
  while (i < n && std::isfinite(values[i])) ++i;
  return i;
}

absl::Status RowNotFinite(const TableLayout& table, uint64_t key, size_t value) {
  const bool state = value >= table.dim();
  // The column that the value belongs to; the last one that begins at it or before.
  std::string column;
  for (const TableLayout::Column& c : table.columns()) {
    if ((state ? c.state_begin + table.dim() : c.begin) <= value) column = c.name;
  }
  return NotFinite(table, absl::StrCat(state ? "the optimizer state" : "a weight", " of key ", key,
                                       column.empty() ? "" : " (column " + column + ")"));
}

absl::Status ElementNotFinite(const TableLayout& table, uint64_t element, size_t array) {
  return NotFinite(table, absl::StrCat(array > 0 ? "the optimizer state of element " : "element ",
                                       element, " (block ", element / table.block_elements(), ")"));
}

}  // namespace sluice
