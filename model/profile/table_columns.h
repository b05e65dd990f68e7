// Adds rows of cells to the columns of a table, whatever the format of its files is.
//
// A column learns from its first cells what it may hold, so these wait until there are enough.
//
// Memory: the waiting rows, at most 1,000 or about 16 MiB.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/profile/table_profile.h"

namespace sluice {

// The first, the last and others between them, at most `most` in all, of so many files.
std::vector<size_t> ChooseFiles(size_t files, size_t most);

class TableColumns {
 public:
  // Tells a new column what is known of it before it has a cell.
  using Start = std::function<void(size_t place, ColumnProfile* column)>;

  // `table` outlives this object.
  TableColumns(TableProfile* table, Start start) : table_(table), start_(std::move(start)) {}

  // `names`: of all columns so far, which may become more; `cells`: for as many of them or fewer.
  void Add(const std::vector<std::string>& names, const std::vector<std::string_view>& cells);
  // Adds the rows that wait. REQUIRES: no row comes after.
  void Look(const std::vector<std::string>& names);

 private:
  void Grow(const std::vector<std::string>& names);

  TableProfile* const table_;
  const Start start_;
  std::vector<std::vector<std::string>> first_;
  size_t first_bytes_ = 0;
  bool looked_ = false;
  uint64_t rows_ = 0;
};

}  // namespace sluice
