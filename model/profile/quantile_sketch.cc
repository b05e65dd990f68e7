#include "model/profile/quantile_sketch.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace sluice {

size_t QuantileSketch::CapacityOf(size_t level) const {
  const auto depth = static_cast<double>(levels_.size() - 1 - level);
  return std::max<size_t>(8, static_cast<size_t>(kWidth * std::pow(2.0 / 3, depth)));
}

void QuantileSketch::Add(double value) {
  if (levels_.empty()) {
    levels_.emplace_back();
    capacity_ = CapacityOf(0);
  }
  least_ = count_ == 0 ? value : std::min(least_, value);
  most_ = count_ == 0 ? value : std::max(most_, value);
  ++count_;
  levels_[0].push_back(value);
  if (++held_ >= capacity_) Compact();
}

void QuantileSketch::Compact() {
  for (size_t h = 0; h < levels_.size(); ++h) {
    if (levels_[h].size() < CapacityOf(h)) continue;
    if (h + 1 == levels_.size()) {
      levels_.emplace_back();
      capacity_ = 0;
      for (size_t i = 0; i < levels_.size(); ++i) capacity_ += CapacityOf(i);
    }
    std::vector<double>& full = levels_[h];
    std::sort(full.begin(), full.end());
    coin_ ^= coin_ << 13;
    coin_ ^= coin_ >> 7;
    coin_ ^= coin_ << 17;
    // An odd number stays, so that the weights still add up to count().
    const bool odd = full.size() % 2 != 0;
    const double last = full.back();
    const size_t even = full.size() - odd;
    for (size_t i = coin_ & 1; i < even; i += 2) levels_[h + 1].push_back(full[i]);
    full.clear();
    if (odd) full.push_back(last);
    held_ -= even / 2;
    return;
  }
}

std::vector<double> QuantileSketch::Quantiles(const std::vector<double>& q) const {
  std::vector<std::pair<double, uint64_t>> weighted;
  for (size_t h = 0; h < levels_.size(); ++h) {
    for (const double value : levels_[h]) weighted.emplace_back(value, uint64_t{1} << h);
  }
  std::sort(weighted.begin(), weighted.end());
  std::vector<double> answers;
  size_t at = 0;
  uint64_t below = 0;  // weight of weighted[0 .. at)
  for (const double share : q) {
    if (share <= 0 || share >= 1) {
      answers.push_back(share <= 0 ? least_ : most_);
      continue;
    }
    const double rank = share * static_cast<double>(count_);
    while (at + 1 < weighted.size() && static_cast<double>(below + weighted[at].second) <= rank)
      below += weighted[at++].second;
    answers.push_back(weighted[at].first);
  }
  return answers;
}

}  // namespace sluice
