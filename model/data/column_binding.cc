#include "model/data/column_binding.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/printable.h"
#include "common/config/closest_name.h"

namespace sluice {
namespace {

constexpr size_t kListedColumns = 100;    // listed in a message
constexpr size_t kShownBytes = 60;        // of a column's name in a message
constexpr size_t kSuggestedFrom = 10000;  // names compared with a missing one

std::string ListColumns(const std::vector<std::string>& names) {
  const size_t listed = std::min(names.size(), kListedColumns);
  std::vector<std::string> shown;
  for (size_t i = 0; i < listed; ++i) {
    const bool longer = names[i].size() > kShownBytes;
    shown.push_back(absl::StrCat(Printable(names[i].substr(0, kShownBytes)), longer ? "..." : ""));
  }
  std::string text = absl::StrJoin(shown, ", ");
  if (listed < names.size()) absl::StrAppend(&text, ", ... (", names.size(), " columns)");
  return text;
}

// The names that no needed column has, which may be misspellings of a missing one. Bounds how many
// and how long names a message compares.
std::vector<std::string> FreeNames(const std::vector<std::string>& needed,
                                   const std::vector<std::string>& names) {
  const absl::flat_hash_set<std::string> taken(needed.begin(), needed.end());
  std::vector<std::string> free;
  for (const std::string& name : names) {
    if (free.size() < kSuggestedFrom && name.size() <= kShownBytes && !taken.contains(name))
      free.push_back(name);
  }
  return free;
}

std::string Suggestion(const std::string& wanted, const std::vector<std::string>& names) {
  const std::string closest = ClosestName(wanted, names);
  return closest.empty() ? "" : absl::StrCat("; did you mean \"", Printable(closest), "\"?");
}

}  // namespace

absl::StatusOr<std::vector<int>> BindColumns(const std::vector<std::string>& needed,
                                             const std::vector<std::string>& names, bool need_label,
                                             const std::string& where, size_t features_end) {
  std::vector<int> bound;
  for (size_t i = 0; i < needed.size(); ++i) {
    const auto first = std::find(names.begin(), names.end(), needed[i]);
    bound.push_back(
        first == names.end() || needed[i].empty() ? -1 : static_cast<int>(first - names.begin()));
    if (needed[i].empty()) continue;
    if (first == names.end()) {
      if (!need_label && i <= kWeightColumn) continue;
      const char* role = i == kLabelColumn    ? "the label"
                         : i == kWeightColumn ? "the weight"
                         : i >= features_end  ? "the id_column"
                                              : "a feature";
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has no column \"", needed[i], "\", which the job uses as ", role,
                       Suggestion(needed[i], FreeNames(needed, names)),
                       "; its columns are: ", ListColumns(names)));
    }
    if (std::find(first + 1, names.end(), needed[i]) != names.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, " has the column \"", needed[i], "\" twice; rename one of them"));
    }
  }
  return bound;
}

}  // namespace sluice
