// Checks that a saved model has the tables of a job.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/model.pb.h"

namespace sluice {

// Compares tables of the same name by kind, shape, and the names and widths of their columns. Other
// tables of the model do not matter. INVALID_ARGUMENT describes the first table that does not fit,
// in the model and in the job, and says how many more there are. `dir` is for messages.
absl::Status CheckTables(const std::string& dir, const Manifest& manifest,
                         const std::vector<TableConfig>& tables);

// The same for a new job that takes the values of a model (initial_model): a table with a `start`
// is compared as that says, and one whose start names no table may be missing.
absl::Status CheckValues(const std::string& dir, const Manifest& manifest,
                         const std::vector<TableConfig>& tables);

// Checks that the optimizers' rules are also those of the checkpoint, so that their state can be
// used. INVALID_ARGUMENT names the first table and column that differ.
// REQUIRES: CheckTables accepts the tables.
absl::Status CheckRules(const std::string& dir, const Manifest& manifest,
                        const std::vector<TableConfig>& tables);

// Checks that a new job can start from a checkpoint: CheckValues, and the rules, for the tables
// that both have. INVALID_ARGUMENT also when they have none in common. *fresh gets the names of the
// job's other tables; may be null.
absl::Status CheckStart(const std::string& dir, const Manifest& manifest,
                        const std::vector<TableConfig>& tables, std::vector<std::string>* fresh);

}  // namespace sluice
