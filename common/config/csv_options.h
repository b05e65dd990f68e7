// Checks of data.csv: options that cannot be, that contradict each other, or that the format of the
// data does not have.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "common/config/config_problem.h"
#include "proto/config.pb.h"

namespace sluice {

// Only of options that say how a line becomes cells and numbers; the columns are
// FindColumnProblems'.
std::vector<ConfigProblem> FindCsvProblems(const DataConfig& data);
// INVALID_ARGUMENT with the first of them.
absl::Status CheckNoCsvOptions(const DataConfig& data);

}  // namespace sluice
