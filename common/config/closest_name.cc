#include "common/config/closest_name.h"

#include <algorithm>
#include <cstddef>

namespace sluice {

size_t EditDistance(const std::string& a, const std::string& b) {
  // Three rows of the table of distances between prefixes: `row` is for the current character of
  // `a`, `previous` and `before` for the last one and the one before it.
  std::vector<size_t> before(b.size() + 1), previous(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    before.swap(previous);
    previous.swap(row);
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, previous[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
    }
  }
  return row[b.size()];
}

std::string ClosestName(const std::string& word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 200;  // the cost grows with the product of both lengths
  if (word.size() > kLongestWord) return "";
  std::string best;
  size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    // The distance is at least the difference of the lengths, which costs nothing to compare.
    const size_t least =
        std::max(word.size(), candidate.size()) - std::min(word.size(), candidate.size());
    if (least >= best_distance) continue;
    const size_t distance = EditDistance(word, candidate);
    if (distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates) {
  const std::string name = ClosestName(word, candidates);
  return name.empty() ? "" : "; did you mean '" + name + "'?";
}

std::string DidYouMeanOrAll(const std::string& word, const std::vector<std::string>& candidates) {
  std::string text = DidYouMean(word, candidates);
  if (!text.empty() || candidates.empty()) return text;
  for (const std::string& candidate : candidates) {
    text += (text.empty() ? "; the choices are: " : ", ") + candidate;
  }
  return text;
}

}  // namespace sluice
