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
Command DashboardCommand();
Command CheckpointCommand();
Command ScaleCommand();
Command DrainCommand();
Command CancelCommand();
Command DownCommand();
Command PlanCommand();
Command PredictCommand();
Command CkptCommand();
Command ReportCommand();
Command DataCommand();
Command CertsCommand();
Command TableCommand();
Command DeltaCommand();
Command JoinCommand();
Command DemoCommand();
// Not for people: `sluice launch --hosts` runs it on each host.
Command HostGuardCommand();

}  // namespace sluice::cli
