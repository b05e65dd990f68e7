// The cells of one column of a block of examples, for formats that keep columns together.
//
// A column means what its cells mean one by one (example_cells.h). CellAt gives such a cell.
//
// Memory: a column borrows all that it points to.
//
// Thread safety: values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/features/example_cells.h"

namespace sluice {

struct CellColumn {
  Cell::Kind kind =
      Cell::Kind::kMissing;  // of each value; kMissing: no row has one. Not kList, kBool

  // Where the values have a dictionary, which is for text alone: value v is text[codes[v]].
  const int32_t* codes = nullptr;  // null: none. Those of absent values may be any
  size_t dictionary_size = 0;
  size_t dictionary_rows = 0;  // about so many rows in all have this dictionary
  uint64_t dictionary_id = 0;  // of another dictionary: another number; never 0

  // By value; which one is not null is up to `kind`.
  const std::string_view* text = nullptr;
  const int64_t* integers = nullptr;  // kInstant: seconds since 1970
  const uint64_t* unsigned_integers = nullptr;
  const double* doubles = nullptr;
  const uint8_t* absent = nullptr;  // null: no value is

  // Of lists: row r has the values [offsets[r], offsets[r + 1]). Null: row r has value r.
  const uint32_t* offsets = nullptr;    // [rows + 1]
  const uint8_t* null_lists = nullptr;  // [rows]; null: no list is
  const double* weights = nullptr;      // by value; null: each is 1

  bool is_list() const { return offsets != nullptr; }
  size_t place(size_t value) const {
    return codes == nullptr ? value : static_cast<size_t>(codes[value]);
  }
};

// The cell of a row. `values` is memory for those of a list.
Cell CellAt(const CellColumn& column, size_t row, std::vector<Cell>* values);

}  // namespace sluice
