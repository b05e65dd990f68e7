// Cuts lines of any text format into cells by column, without a job: columns of LIBSVM, LIBFFM and
// JSON_LINES appear as they occur.
//
// Memory: scratch space is reused. Cells point into the line, which cutting may change.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/data/record_rule.h"
#include "model/profile/text_shape.h"

namespace sluice {

class RowCutter {
 public:
  static constexpr size_t kMostColumns = 5000;

  // INVALID_ARGUMENT when the shape has more than kMostColumns columns, or a format that is not cut
  // here.
  static absl::StatusOr<std::unique_ptr<RowCutter>> Create(const TextShape& shape);
  virtual ~RowCutter() = default;

  // Whether the line is blank, a comment or a header.
  virtual bool Skips(std::string_view line) const = 0;
  // INVALID_ARGUMENT says what is wrong with the line; RESOURCE_EXHAUSTED that it has the column
  // after kMostColumns.
  virtual absl::Status Cut(char* line, size_t size) = 0;
  // Of the last line, in the order of columns(); "" where it has none. kListDelimiter is between
  // the values of a list.
  const std::vector<std::string_view>& cells() const { return cells_; }
  const std::vector<std::string>& columns() const { return columns_; }
  static constexpr char kListDelimiter = '\x1f';
  // Whether the column is one of lists, from what was cut so far.
  bool HasLists(size_t column) const { return column < has_lists_.size() && has_lists_[column]; }
  // Where lines are joined.
  virtual RecordRule rule() const { return {}; }

 protected:
  std::vector<std::string> columns_;
  std::vector<std::string_view> cells_;
  std::vector<bool> has_lists_;  // [columns or fewer]
};

}  // namespace sluice
