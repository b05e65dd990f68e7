// `tables { ... }` of a job laid over the tables that its model derives.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

// Overrides by name: initializer, optimizer, num_shards, wire_type, and column groups by their
// name. Kind, shape and dims belong to the model. An optimizer with a rule replaces the derived
// one, without a rule it changes the fields that it sets. INVALID_ARGUMENT names table, field and
// fix.
absl::Status OverrideTables(const JobConfig& job, std::vector<TableConfig>* tables);

// `lr_scale: WORKERS`: every learning rate times worker_num. After the overrides.
void ScaleLearningRates(const JobConfig& job, std::vector<TableConfig>* tables);

}  // namespace sluice
