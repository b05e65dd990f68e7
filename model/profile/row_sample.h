// A uniform sample of the rows of a table, and what single columns say about the label in it.
//
// Memory: at most kMostRows rows of kMostBytes in all; of each cell the first kMostCellBytes.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice {

class RowSample {
 public:
  static constexpr size_t kMostRows = 20000;
  static constexpr size_t kMostBytes = 64 << 20;
  static constexpr size_t kMostCellBytes = 4 << 10;

  void Add(const std::vector<std::string_view>& cells);
  size_t size() const { return rows_.size(); }
  // "" where the row has no such column.
  std::string_view Cell(size_t row, size_t column) const;

  // Area under the curve, at least 0.5, of the label (0 or 1 for each row, -1 for none) when the
  // rows are ordered by the column: by its number, or, without `numbers`, by how often its value
  // comes with label 1 in the other half of the rows. 0 when the rows have one label only.
  double AucOf(size_t column, bool numbers, const std::vector<int>& labels) const;

 private:
  struct Row {
    std::string text;
    std::vector<uint32_t> ends;  // of the cells in `text`
  };
  // A number below `below`, which is above 0.
  size_t Random(uint64_t below);
  static size_t BytesOf(const Row& row);

  std::vector<Row> rows_;
  size_t most_rows_ = kMostRows;  // less where rows are long
  size_t bytes_ = 0;
  uint64_t seen_ = 0;
  uint64_t state_ = 0x9E3779B97F4A7C15u;
};

}  // namespace sluice
