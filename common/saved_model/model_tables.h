// Whether a saved model has the tables of a job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/model.pb.h"

namespace sluice {

// By name: kind, shape, names and widths of columns; what else the model has plays no part.
// INVALID_ARGUMENT says of the first table that does not fit what it is here and there, and how
// many more there are. `dir` is for messages.
absl::Status CheckTables(const std::string& dir, const Manifest& manifest,
                         const std::vector<TableConfig>& tables);

}  // namespace sluice
