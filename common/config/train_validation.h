// Finds the problems of a job's training options: batches, pipeline, cache of hot rows.
//
// Thread safety:
//   pure functions.
#pragma once

#include <vector>

#include "common/config/config_problem.h"
#include "common/config/model_rules.h"
#include "proto/config.pb.h"

namespace sluice {

// Problems of strategy.a_sync_configs.hot_row_cache. `parts` come from the job's model.
// REQUIRES: `job` has this field.
std::vector<ConfigProblem> FindHotRowCacheProblems(const JobConfig& job, const ModelParts& parts);
// Problems of train and eval.batch_size.
std::vector<ConfigProblem> FindTrainProblems(const JobConfig& job);

}  // namespace sluice
