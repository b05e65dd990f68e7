// Turns the tables that a model derives into the tables of the job.
//
// Thread safety:
//   pure function.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

// Applies the options of the job that every model's tables share, in this order: in Geo, workers
// update the tables; tables { ... } overrides them; lr_scale: WORKERS multiplies each learning rate
// by worker_num.
//
// An override names its table or column group and may change initializer, optimizer, num_shards,
// max_rows and wire_type. Kind, shape and dims belong to the model. An optimizer with a rule
// replaces the derived one; without a rule it only changes the fields that it sets.
// INVALID_ARGUMENT names the table, the field and the fix.
absl::Status CompleteTables(const JobConfig& job, std::vector<TableConfig>* tables);

}  // namespace sluice
