#include "model/profile/value_counts.h"

#include <algorithm>

#include "absl/strings/string_view.h"

namespace sluice {

void ValueCounts::Add(std::string_view value) {
  const absl::string_view key(value.data(), std::min(value.size(), kMostBytes));
  const auto known = counts_.find(key);
  if (known != counts_.end()) {
    ++known->second;
    return;
  }
  if (counts_.size() < kMost) {
    counts_.emplace(std::string(key), 1);
    return;
  }
  // The new value and one of each value that is held cancel each other.
  ++error_;
  for (auto it = counts_.begin(); it != counts_.end();) {
    if (--it->second == 0) {
      counts_.erase(it++);
    } else {
      ++it;
    }
  }
}

std::vector<std::pair<std::string, uint64_t>> ValueCounts::Sorted() const {
  std::vector<std::pair<std::string, uint64_t>> sorted(counts_.begin(), counts_.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  return sorted;
}

}  // namespace sluice
