// Writes plans as JSON and reads the costs of an earlier one.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/base/env.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

// Format: protobuf's JSON mapping, indented, with the names of proto/plan.proto. `message` is a
// Plan or a Scaling.
absl::StatusOr<std::string> PlanJson(const google::protobuf::Message& message);

// Reads the costs from a file that PlanJson has written. INVALID_ARGUMENT names the file.
absl::StatusOr<PlanCosts> ReadCosts(const std::string& file, Env* env);

}  // namespace sluice::plan
