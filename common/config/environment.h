// The variables SLUICE_*: which program reads which, and which it refuses.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace sluice {

// `program`: a command of sluice ("launch") or a daemon ("sluice-worker"). INVALID_ARGUMENT names a
// variable SLUICE_* that is set, not empty, and
// - unknown, with the nearest that there is; or
// - not read by `program`, where it would be taken for a setting, with what to do instead.
// `launch`,
//   `up` and `submit` refuse every variable that they do not read. A daemon refuses those of a job,
//   but not those of other daemons: one file may hold the variables of all daemons of a host. The
//   other commands refuse only variables that have the name of one of their flags.
absl::Status CheckEnvironment(const std::string& program);

// Whether `program` reads `variable` ("RANK", without the prefix).
bool ReadsVariable(const std::string& program, const std::string& variable);

}  // namespace sluice
