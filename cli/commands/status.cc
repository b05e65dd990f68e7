// sluice status: prints the state of a cluster.
#include <iostream>

#include "cli/commands/commands.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/status_text.h"
#include "common/admin/status_json.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {
namespace {

int Status(const ParsedCommand& command) {
  const auto client = ConnectToScheduler(command, Clock::Real());
  if (!client.ok()) return ReportError(client.status());
  const auto status = (*client)->GetStatus();
  if (!status.ok()) return ReportError(status.status());
  if (!command.Switch("json")) {
    std::cout << StatusText(*status);
    return kDone;
  }
  const auto json = StatusJson(*status);
  if (!json.ok()) return ReportError(json.status());
  std::cout << *json;
  return kDone;
}

}  // namespace

Command StatusCommand() {
  CommandSpec spec;
  spec.name = "status";
  spec.summary =
      "Shows the members, tables and jobs of a cluster, their progress and what they wait for.";
  spec.only_prints = true;
  spec.flags = SchedulerFlags();
  spec.flags.push_back({"json", FlagKind::kBool, "", "", "print the status as JSON"});
  spec.examples =
      "  sluice status\n"
      "  sluice status --scheduler=10.0.0.1:7100 --insecure --json\n";
  return {spec, &Status};
}

}  // namespace sluice::cli
