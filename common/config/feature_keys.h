// Checks the options of features that say how values become keys, and which rows the keys have:
// `key`, `embedding` and `table`.
//
// Thread safety: pure function.
#pragma once

#include <vector>

#include "common/config/config_problem.h"
#include "proto/config.pb.h"

namespace sluice {

// Problems of single features: `key: RAW` with options that change or replace values, and options
// without effect. Whether features fit each other is checked with the model
// (model/features/sparse_table_plan.h).
std::vector<ConfigProblem> FindKeyProblems(const JobConfig& job);

}  // namespace sluice
