// A problem with one field of a configuration, on its own or as an error that carries the field's
// path, and the checks that several parts of the validation share.
//
// Thread safety:
//   pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/config.pb.h"

namespace sluice {

struct ConfigProblem {
  std::string path;  // of the field: "train.batch_size", "features[2].name"
  std::string text;  // value, reason and fix
};

// Adds a problem unless `value` is in [low, high].
void AddIfOutOfRange(const std::string& path, uint64_t value, uint64_t low, uint64_t high,
                     std::vector<ConfigProblem>* problems);

// Adds a problem for each value of the initializer at `path` that is not finite or impossible.
void AddInitializerProblems(const std::string& path, const Initializer& initializer,
                            std::vector<ConfigProblem>* problems);

// Attaches the path of the field that `status` is about. Returns `status` unchanged when it is OK
// or has a path already.
absl::Status AtField(const std::string& path, absl::Status status);
// The attached path; "" when there is none.
std::string FieldOf(const absl::Status& status);

}  // namespace sluice
