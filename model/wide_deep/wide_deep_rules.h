// The defaults of the options of a wide_deep job, and the checks of these options.
//
// Thread safety:
//   immutable.
#pragma once

#include <vector>

#include "common/config/model_rules.h"
#include "model/features/feature_use.h"

namespace sluice {

// The features that the parts of the job's model use. REQUIRES: the model is wide_deep.
FeatureUse WideDeepUseOf(const JobConfig& job);

// REQUIRES: each job's model is wide_deep.
class WideDeepRules : public ModelRules {
 public:
  void FillDefaults(JobConfig* job) const override;
  ModelParts PartsOf(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindProblems(const JobConfig& job) const override;
  std::vector<ConfigProblem> FindUnused(const JobConfig& job) const override;
};

}  // namespace sluice
