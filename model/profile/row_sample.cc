#include "model/profile/row_sample.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "common/base/mix_hash.h"
#include "model/features/cell.h"

namespace sluice {

void RowSample::Add(const std::vector<std::string_view>& cells) {
  ++seen_;
  size_t place = rows_.size();
  // Algorithm R of Vitter, 1985.
  if (rows_.size() >= most_rows_) {
    place = Random(seen_);
    if (place >= rows_.size()) return;
    bytes_ -= BytesOf(rows_[place]);
  } else {
    rows_.emplace_back();
  }
  Row row;
  for (std::string_view cell : cells) {
    cell = cell.substr(0, kMostCellBytes);
    row.text += cell;
    row.ends.push_back(static_cast<uint32_t>(row.text.size()));
  }
  bytes_ += BytesOf(row);
  rows_[place] = std::move(row);
  // A smaller sample is uniform too, when chance says which rows leave it.
  while (bytes_ > kMostBytes && rows_.size() > 1) {
    const size_t leaves = Random(rows_.size());
    bytes_ -= BytesOf(rows_[leaves]);
    rows_[leaves] = std::move(rows_.back());
    rows_.pop_back();
    most_rows_ = rows_.size();
  }
}

size_t RowSample::Random(uint64_t below) {
  state_ = MixHash(state_ + seen_);
  return static_cast<size_t>(state_ % below);
}

size_t RowSample::BytesOf(const Row& row) {
  return row.text.size() + row.ends.size() * sizeof row.ends[0];
}

std::string_view RowSample::Cell(size_t row, size_t column) const {
  const Row& of = rows_[row];
  if (column >= of.ends.size()) return "";
  const uint32_t begin = column == 0 ? 0 : of.ends[column - 1];
  return std::string_view(of.text).substr(begin, of.ends[column] - begin);
}

double RowSample::AucOf(size_t column, bool numbers, const std::vector<int>& labels) const {
  struct Scored {
    double score;
    int label;
  };
  std::vector<Scored> scored;
  // Counts of label 0 and 1 by value, for each half of the rows. A hash deals the rows, because
  // labels may alternate from row to row.
  const auto half = [](size_t row) { return MixHash(row + 1) >> 63; };
  std::array<absl::flat_hash_map<std::string_view, std::array<double, 2>>, 2> counts;
  std::array<double, 2> all{};
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (labels[r] < 0) continue;
    all[labels[r]] += 1;
    if (!numbers) counts[half(r)][Cell(r, column)][labels[r]] += 1;
  }
  if (all[0] == 0 || all[1] == 0) return 0;
  const double prior = all[1] / (all[0] + all[1]);
  for (size_t r = 0; r < rows_.size(); ++r) {
    if (labels[r] < 0) continue;
    const std::string_view cell = Cell(r, column);
    double score = -1e300;  // missing values below all others
    if (numbers) {
      double value;
      if (ParseNumber(cell, &value)) score = value;
    } else {
      constexpr double kPriorRows = 10;
      const auto& other = counts[1 - half(r)];
      const auto known = other.find(cell);
      const double positive = known == other.end() ? 0 : known->second[1];
      const double negative = known == other.end() ? 0 : known->second[0];
      score = (positive + kPriorRows * prior) / (positive + negative + kPriorRows);
    }
    scored.push_back({score, labels[r]});
  }
  std::sort(scored.begin(), scored.end(),
            [](const Scored& a, const Scored& b) { return a.score < b.score; });
  double area = 0, negatives = 0;
  for (size_t i = 0; i < scored.size();) {
    std::array<double, 2> tied{};
    const double score = scored[i].score;
    for (; i < scored.size() && scored[i].score == score; ++i) tied[scored[i].label] += 1;
    area += tied[1] * (negatives + tied[0] / 2);
    negatives += tied[0];
  }
  area /= all[0] * all[1];
  return std::max(area, 1 - area);
}

}  // namespace sluice
