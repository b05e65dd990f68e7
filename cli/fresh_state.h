// The state folder of the scheduler of a local cluster.
//
// Thread safety: a free function, safe from any thread.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice::cli {

// Removes the scheduler's state of an earlier cluster, so that its jobs do not come back.
// INVALID_ARGUMENT: `dir` is something else, and is left alone. REQUIRES: no scheduler uses it.
absl::Status ClearState(const std::string& dir);

}  // namespace sluice::cli
