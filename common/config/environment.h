// The variables SLUICE_*: an unknown one is refused, as an unknown flag is.
#pragma once

#include "absl/status/status.h"

namespace sluice {

// INVALID_ARGUMENT names a variable SLUICE_* that is set, not empty and that no program reads, with
// the nearest that there is.
absl::Status CheckEnvironment();

}  // namespace sluice
