// What is wrong with a job, field by field.
#pragma once

#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

struct ConfigProblem {
  std::string path;  // of the field: "train.batch_size", "features[2].name"
  std::string text;  // value, reason and fix
};

// `job` has its defaults filled in.
std::vector<ConfigProblem> FindProblems(const JobConfig& job);

}  // namespace sluice
