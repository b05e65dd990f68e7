// The rows of a block of columns: which values are missing, which rows a column refuses, and the
// numbers of a column.
//
// Thread safety: one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "model/features/cell.h"
#include "model/features/cell_column.h"
#include "model/features/date_format.h"
#include "model/features/feature_compiler.h"

namespace sluice {

class ColumnBlock {
 public:
  // `features` outlives it.
  explicit ColumnBlock(const CompiledFeatures& features)
      : f_(features),
        missing_(features.columns.size()),
        dictionary_absent_(features.columns.size()) {}

  // Goes on to the next block. `counting`: its values are counted.
  void Begin(const CellColumn* columns, size_t rows, bool counting);
  size_t rows() const { return rows_; }
  bool counting() const { return counting_; }

  // Says that a column refuses the row.
  void Refuse(size_t row, bool refused = true) { bad_[row] |= static_cast<uint8_t>(refused); }
  bool IsRefused(size_t row) const { return bad_[row] != 0; }
  // By row: whether the column has no value.
  const std::vector<uint8_t>& missing(size_t column) const { return missing_[column]; }
  bool HasMissing(size_t column) const {
    return std::memchr(missing_[column].data(), 1, missing_[column].size()) != nullptr;
  }

  bool IsAbsent(std::string_view text) const { return f_.IsAbsent(text); }
  bool Number(std::string_view text, double* value) const { return f_.Number(text, value); }
  // Fills *to [rows] where column number `c` has a value, and refuses rows whose value is no
  // number. `date`: the number is a part of it.
  void ReadNumbers(const CellColumn& column, size_t c, const DateFormat* date,
                   std::vector<double>* to);

 private:
  struct DictionaryAbsent {
    uint64_t id = 0;
    bool any = false;
    std::vector<uint8_t> absent;
  };

  void FindMissing(size_t c, const CellColumn& column);

  const CompiledFeatures& f_;
  size_t rows_ = 0;
  bool counting_ = false;
  std::vector<uint8_t> bad_;                         // [rows]
  std::vector<std::vector<uint8_t>> missing_;        // by column [rows]
  std::vector<DictionaryAbsent> dictionary_absent_;  // by column
  std::vector<Cell> cell_values_;
};

}  // namespace sluice
