// Checks that a job may start from a saved model. The model's values only make sense for features
// that read the same columns, in the same way and in the same places.
//
// Comparing shapes is not enough: two swapped columns have the same shapes. proto/config.proto
// lists the rules at initial_model and initial_checkpoint.
//
// Thread safety: free functions; CheckInitialModel and CheckInitialCheckpoint read files.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "model/model_list.h"
#include "proto/config.pb.h"

namespace sluice {

// The differences, one a line: a feature or field, its value in the model's job and in this one.
struct ModelDifferences {
  std::vector<std::string> refused;   // certainly mistakes
  std::vector<std::string> warnings;  // possibly intended
};

// Both jobs are effective, and `models` has their models.
absl::StatusOr<ModelDifferences> CompareWithModel(const JobConfig& of_model, const JobConfig& job,
                                                  const ModelList& models);

// Compares the tables and then the features of the job's initial_model with the job. Returns the
// warnings, or INVALID_ARGUMENT naming what does not fit. Returns no warnings without
// initial_model, and also when its manifest cannot be read here: whoever loads the model then
// reports the error.
absl::StatusOr<std::vector<std::string>> CheckInitialModel(const JobConfig& job,
                                                           const ModelList& models, Env* env);

// The same for the job's initial_checkpoint, a folder that FindCheckpoint accepts: also compares
// the optimizers' rules, and warns of tables that start fresh. Reads no shard files.
absl::StatusOr<std::vector<std::string>> CheckInitialCheckpoint(const JobConfig& job,
                                                                const ModelList& models, Env* env);

}  // namespace sluice
