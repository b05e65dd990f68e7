// The SLUICE_* environment variables: which programs read each of them and which refuse it.
//
// Thread safety:
//   pure functions that read the environment; nobody may change it meanwhile.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace sluice {

// `program` is a command of sluice ("launch") or a daemon ("sluice-worker"). INVALID_ARGUMENT names
// a SLUICE_* variable that is set, not empty, and
// - unknown: the message names the nearest known variable; or
// - not read by `program`, though a user could expect it to be: the message says what to do.
//
// `launch`, `up` and `submit` refuse every variable that they do not read. A daemon refuses the
// variables of a job but not the variables of other daemons, since one file may hold the variables
// of all daemons of a host. The other commands only refuse variables that share a name with one of
// their flags.
absl::Status CheckEnvironment(const std::string& program);

// A line for each variable of a job that is set, not empty, and has no effect on `program`, which
// tolerates it: one shell may set it for all commands.
std::vector<std::string> NotesOnEnvironment(const std::string& program);

// Whether `program` reads `variable` ("RANK", without the prefix).
bool ReadsVariable(const std::string& program, const std::string& variable);

}  // namespace sluice
