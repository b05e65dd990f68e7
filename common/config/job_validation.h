// What is wrong with a job, field by field.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

struct ConfigProblem {
  std::string path;  // of the field: "train.batch_size", "features[2].name"
  std::string text;  // value, reason and fix
};

// What the model of `job` has; a part's options have no effect without it. Features and the wide
// switches have their defaults filled in.
struct ModelParts {
  bool dense = false;      // hidden layers, or the wide part over numbers
  bool embedding = false;  // keys in a deep part
  bool wide = false;       // keys in the wide part
};
ModelParts PartsOf(const JobConfig& job);

// Adds a problem unless `value` is in [low, high].
void AddIfOutOfRange(const std::string& path, uint64_t value, uint64_t low, uint64_t high,
                     std::vector<ConfigProblem>* problems);

// `job` has its defaults filled in; none of what has no effect (that it sets such a field is a
// problem).
std::vector<ConfigProblem> FindProblems(const JobConfig& job);

}  // namespace sluice
