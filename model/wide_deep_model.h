// wide_deep as a Model: its tables from features and options, and its networks.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/model.h"

namespace sluice {

// REQUIRES: job.model() is wide_deep.
absl::StatusOr<std::unique_ptr<Model>> CreateWideDeepModel(const JobConfig& job);

}  // namespace sluice
