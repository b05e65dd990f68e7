// The command line of a daemon, or of sluice-bench: its help, and flags checked by name and value
// before gflags reads them (which would end the process with its own code and words).
//
// Thread safety: main's thread, before any other starts.
#pragma once

#include <string>

#include "absl/status/statusor.h"

namespace sluice {

// True when --help is asked for. INVALID_ARGUMENT: a flag that does not exist, with the nearest
// that does, or a value that its type does not have.
absl::StatusOr<bool> CheckDaemonFlags(int argc, char** argv);

// `program`: a path, of which the last part is shown. `usage`: the summary, then examples a line.
// With the flags of the program's main and --log_dir; the rest of what the libraries define is in
// --helpfull.
std::string DaemonHelp(const std::string& program, const std::string& usage);

}  // namespace sluice
