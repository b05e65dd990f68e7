// What is wrong with how a job trains: batches, pipeline, cache of hot rows.
#pragma once

#include <vector>

#include "common/config/job_validation.h"
#include "proto/config.pb.h"

namespace sluice {

// As FindProblems; of strategy.a_sync_configs.hot_row_cache, which `job` has.
std::vector<ConfigProblem> FindHotRowCacheProblems(const JobConfig& job);
// Of train and eval.batch_size.
std::vector<ConfigProblem> FindTrainProblems(const JobConfig& job);

}  // namespace sluice
