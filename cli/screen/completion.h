// Completion of `sluice` by shells, made from the list of its commands and flags.
//
// Thread safety: stateless.
#pragma once

#include <string>
#include <vector>

#include "cli/screen/command_line.h"

namespace sluice::cli {

// The script that bash reads: source <(sluice completion bash).
std::string BashCompletion(const std::vector<CommandSpec>& commands);
// The script that zsh reads as _sluice from a folder of its $fpath, or with source after compinit.
std::string ZshCompletion(const std::vector<CommandSpec>& commands);

}  // namespace sluice::cli
