// Turns the tables that a model derives into those of the job.
//
// Thread safety:
//   pure function.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

// Applies what every model's tables take from the job, in this order: in Geo, workers update them;
// tables { ... } overrides them; lr_scale: WORKERS multiplies each learning rate by worker_num.
//
// Tables and column groups are overridden by name: initializer, optimizer, num_shards and
// wire_type. Kind, shape and dims belong to the model. An optimizer with a rule replaces the
// derived one; without a rule it changes the fields that it sets. INVALID_ARGUMENT names table,
// field and fix.
absl::Status CompleteTables(const JobConfig& job, std::vector<TableConfig>* tables);

}  // namespace sluice
