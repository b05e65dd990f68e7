// Checks the command line of a daemon or of sluice-bench, and prints its help.
//
// The flags are checked by name and value before gflags reads them: gflags would end the process
// with its own exit code and message.
//
// Thread safety: one thread. Call from main before other threads start.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice {

// True when --help is given. INVALID_ARGUMENT names a flag that does not exist together with the
// nearest one that does, or a value that the flag's type does not allow.
absl::StatusOr<bool> CheckDaemonFlags(int argc, char** argv);

// The help text: `usage`, then the flags of the program's main and --log_dir. The other flags of
// libraries are left to --helpfull. `program` is a path, of which the last part is shown; `usage`
// holds the summary, then one example per line.
std::string DaemonHelp(const std::string& program, const std::string& usage);

}  // namespace sluice
