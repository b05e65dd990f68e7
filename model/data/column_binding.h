// Finds the columns that a job needs among the names that a header, a format or data.csv.columns
// gives them.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace sluice {

// Places in FeatureSchema::columns().
inline constexpr size_t kLabelColumn = 0, kWeightColumn = 1;

// Returns the place of each needed column in `names`, or -1 for one that may be missing: a column
// without a name, and label and weight unless `need_label`. Columns from `features_end` on are not
// features. INVALID_ARGUMENT names a missing column, with the closest name, or one that `names` has
// twice. `where` says whose names they are: "data file F" or "data.csv.columns".
absl::StatusOr<std::vector<int>> BindColumns(const std::vector<std::string>& needed,
                                             const std::vector<std::string>& names, bool need_label,
                                             const std::string& where,
                                             size_t features_end = SIZE_MAX);

}  // namespace sluice
