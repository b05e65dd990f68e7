// The subcommands of `sluice data`.
//
// Thread safety: each runs in the main thread.
#pragma once

#include <vector>

#include "cli/screen/command_line.h"

namespace sluice::cli {

// sluice data gen. Returns the exit code.
int GenerateData(const ParsedCommand& command);
std::vector<FlagSpec> GenerateDataFlags();

// sluice data check FILE... Returns the exit code.
int CheckDataFiles(const ParsedCommand& command);
std::vector<FlagSpec> CheckDataFlags();

}  // namespace sluice::cli
