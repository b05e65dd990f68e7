// Whether a saved model means what a job means: its values fit only features that read the same
// columns in the same way, in the same places.
//
// Shapes alone do not tell: two swapped columns fit as well as the right ones. The rules are in
// proto/config.proto at initial_model.
//
// Thread safety: pure functions.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/model_list.h"
#include "proto/config.pb.h"

namespace sluice {

// What differs, a line each: of a feature or field, what it is in the model's job and in this one.
struct ModelDifferences {
  std::vector<std::string> refused;   // cannot be meant
  std::vector<std::string> warnings;  // may be meant
};

// Both jobs are effective, and `models` has their models.
absl::StatusOr<ModelDifferences> CompareWithModel(const JobConfig& of_model, const JobConfig& job,
                                                  const ModelList& models);

// The job's initial_model: its tables, then its features. INVALID_ARGUMENT says what does not fit;
// otherwise the warnings. None without initial_model, and when there is no intact model here: who
// reads all of it says so.
absl::StatusOr<std::vector<std::string>> CheckInitialModel(const JobConfig& job,
                                                           const ModelList& models);

}  // namespace sluice
