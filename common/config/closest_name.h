// Finds the name that a misspelled word probably stands for.
//
// Thread safety:
//   pure functions.
#pragma once

#include <string>
#include <vector>

namespace sluice {

// The smallest number of edits that turn `a` into `b`. An edit inserts, deletes or replaces one
// character, or swaps two neighbours.
size_t EditDistance(const std::string& a, const std::string& b);

// The candidate nearest to `word`, or "" when none is near: an edit distance of more than a third
// of the word's length is too far.
std::string ClosestName(const std::string& word, const std::vector<std::string>& candidates);

// "; did you mean 'x'?", or "" when no candidate is near.
std::string DidYouMean(const std::string& word, const std::vector<std::string>& candidates);

// As DidYouMean, but "; the choices are: a, b, c" when no candidate is near.
std::string DidYouMeanOrAll(const std::string& word, const std::vector<std::string>& candidates);

}  // namespace sluice
