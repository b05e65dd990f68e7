#include "model/profile/table_columns.h"

#include <algorithm>

namespace sluice {
namespace {

constexpr size_t kFirstRows = 1000;  // from which a column learns what it may hold
constexpr size_t kFirstBytes = 16 << 20;

}  // namespace

std::vector<size_t> ChooseFiles(size_t files, size_t most) {
  std::vector<size_t> chosen;
  const size_t n = std::min(files, most);
  for (size_t i = 0; i < n; ++i) chosen.push_back(n == 1 ? 0 : i * (files - 1) / (n - 1));
  return chosen;
}

void TableColumns::Add(const std::vector<std::string>& names,
                       const std::vector<std::string_view>& cells) {
  table_->rows.Add(cells);
  if (first_.size() < kFirstRows && !looked_) {
    first_.emplace_back(cells.begin(), cells.end());
    for (const std::string_view cell : cells) first_bytes_ += cell.size();
    if (first_.size() == kFirstRows || first_bytes_ > kFirstBytes) Look(names);
    return;
  }
  Grow(names);
  for (size_t c = 0; c < cells.size(); ++c) table_->columns[c].Add(cells[c]);
  ++rows_;
}

void TableColumns::Look(const std::vector<std::string>& names) {
  if (looked_) return;
  looked_ = true;
  Grow(names);
  for (size_t c = 0; c < names.size(); ++c) {
    std::vector<std::string> cells;
    for (const std::vector<std::string>& row : first_) {
      if (c < row.size()) cells.push_back(row[c]);
    }
    table_->columns[c].LookAt(cells);
    for (size_t r = 0; r < first_.size(); ++r)
      table_->columns[c].Add(c < first_[r].size() ? std::string_view(first_[r][c]) : "");
  }
  rows_ = first_.size();
  first_.clear();
}

void TableColumns::Grow(const std::vector<std::string>& names) {
  while (table_->columns.size() < names.size()) {
    const size_t c = table_->columns.size();
    ColumnProfile& column = table_->columns.emplace_back(names[c]);
    start_(c, &column);
    column.AddMissing(rows_);
  }
}

}  // namespace sluice
