// The options of a program's job: their defaults, and what is wrong with them.
//
// Thread safety:
//   immutable.
#pragma once

#include <vector>

#include "common/config/model_rules.h"
#include "model/features/feature_use.h"

namespace sluice {

// How a program uses the features of its job.
FeatureUse ProgramUseOf(const JobConfig& job);

// REQUIRES: each job's model is program.
class ProgramRules : public ModelRules {
 public:
  void FillDefaults(JobConfig* job) const override;
  ModelParts PartsOf(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindProblems(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindUnused(const JobConfig& job) const override;
};

}  // namespace sluice
