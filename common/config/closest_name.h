// The name somebody probably meant.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// Least number of insertions, deletions and replacements of a character and swaps of neighbours
// from `a` to `b`.
size_t EditDistance(const std::string& a, const std::string& b);

// The candidate nearest to `word`, "" when none is near (more than a third of its characters
// differ).
std::string ClosestName(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean 'x'?" or "".
std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates);

// The same, and "; there are: a, b, c" when none is near.
std::string DidYouMeanOrAll(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace sluice
