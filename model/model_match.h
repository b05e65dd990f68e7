// Checks that a job may start from a saved model. The model's values only make sense for features
// that read the same columns in the same way, and in the same places unless they can be followed.
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
  // Features that came or went, which the tables follow. Notes tell of them all (StartCheck).
  std::vector<std::string> followed;
};

// Both jobs are effective, and `models` has their models. The same features must be in the same
// places: their tables have one form.
absl::StatusOr<ModelDifferences> CompareWithModel(const JobConfig& of_model, const JobConfig& job,
                                                  const ModelList& models);

// What a job takes from the model or checkpoint that it starts from.
struct StartCheck {
  std::vector<std::string> warnings;
  // The features that came, went, moved or were widened, and what each table keeps
  // (feature_changes.h). Empty: all tables are taken as they are.
  std::vector<std::string> notes;
  // The job's tables, with their `start`. Empty: no model was compared.
  std::vector<TableConfig> tables;
};

// Compares the tables and then the features of the job's initial_model with the job. Features may
// have changed, except with evaluate_only. Returns INVALID_ARGUMENT naming what does not fit.
// Compares nothing without initial_model, and also when its manifest cannot be read here: whoever
// loads the model then reports the error.
absl::StatusOr<StartCheck> CheckInitialModel(const JobConfig& job, const ModelList& models,
                                             Env* env);

// The same for the job's initial_checkpoint, a folder that FindCheckpoint accepts: also compares
// the optimizers' rules, num_shards (FixShards) and, by the header of a shard file of each table
// whose rows go, data.day; and warns of tables that start fresh.
absl::StatusOr<StartCheck> CheckInitialCheckpoint(const JobConfig& job, const ModelList& models,
                                                  Env* env);

}  // namespace sluice
