// Finds the problems of a job's configuration, field by field.
//
// Thread safety:
//   pure function.
#pragma once

#include <vector>

#include "common/config/config_problem.h"
#include "common/config/model_rules.h"
#include "proto/config.pb.h"

namespace sluice {

// `job` has its defaults filled in, except for options that would have no effect: setting such an
// option is a problem.
std::vector<ConfigProblem> FindProblems(const JobConfig& job, const ModelRules& rules);

}  // namespace sluice
