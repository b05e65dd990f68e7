// Finds the problems of a job's configuration, field by field.
//
// Thread safety:
//   pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "common/config/config_problem.h"
#include "common/config/model_rules.h"
#include "proto/config.pb.h"

namespace sluice {

// The most workers of a job.
inline constexpr uint32_t kMaxWorkers = 65536;
// The most epochs of a job. The scheduler lists their phases when an attempt begins.
inline constexpr uint32_t kMaxEpochs = 100'000;
inline constexpr uint32_t kMaxFuseMb = 1024;
inline constexpr uint32_t kMaxFuseLayers = 1024;
inline constexpr uint32_t kMaxCommNum = 8;

// `job` has its defaults filled in, except for options that would have no effect: setting such an
// option is a problem.
std::vector<ConfigProblem> FindProblems(const JobConfig& job, const ModelRules& rules);

// Parts of FindProblems, in train_validation.cc and row_policy_validation.cc.
//
// Problems of strategy.a_sync_configs.hot_row_cache. `parts` come from the job's model.
// REQUIRES: `job` has this field.
std::vector<ConfigProblem> FindHotRowCacheProblems(const JobConfig& job, const ModelParts& parts);
// Problems of train and eval.batch_size.
std::vector<ConfigProblem> FindTrainProblems(const JobConfig& job);
// Problems of max_gib, evict and admit of tables[index].
std::vector<ConfigProblem> FindRowPolicyProblems(const JobConfig& job, int index);

}  // namespace sluice
