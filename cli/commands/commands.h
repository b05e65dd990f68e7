// The subcommands. Each is defined in its own file; main.cc dispatches to them.
#pragma once

#include <functional>
#include <vector>

#include "cli/screen/command_line.h"

namespace sluice::cli {

struct Command {
  CommandSpec spec;
  std::function<int(const ParsedCommand&)> run;  // returns the exit code
};

Command LaunchCommand();
Command UpCommand();
Command SubmitCommand();
Command StatusCommand();
Command LogsCommand();
Command CheckpointCommand();
Command ScaleCommand();
Command DrainCommand();
Command CancelCommand();
Command DownCommand();
Command PlanCommand();
Command PredictCommand();
Command CkptCommand();
Command DataCommand();
Command CertsCommand();

}  // namespace sluice::cli
