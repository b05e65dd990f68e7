// The options of a linear job: where they are, their defaults, and what is wrong with them.
//
// Thread safety:
//   immutable.
#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "common/config/model_rules.h"
#include "tests/model/linear_model/linear_model.pb.h"

namespace sluice {

// INVALID_ARGUMENT says what is wrong with the text of the options.
absl::StatusOr<LinearModelConfig> LinearOptionsOf(const JobConfig& job);

// REQUIRES: each job's model is linear.
class LinearRules : public ModelRules {
 public:
  void FillDefaults(JobConfig* job) const override;
  ModelParts PartsOf(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindProblems(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindUnused(const JobConfig& job) const override;
};

}  // namespace sluice
