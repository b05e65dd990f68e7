// sluice host-guard: the part of `sluice launch --hosts` that runs on each host.
#include "cli/hosts/host_guard.h"

#include <unistd.h>

#include "cli/commands/commands.h"
#include "cli/jobs/watch_job.h"
#include "common/daemon/stop_signal.h"

namespace sluice::cli {
namespace {

int Guard(const ParsedCommand&) {
  StopSignal::Install(/*die_with_parent=*/true);
  const absl::Status status = RunHostGuard(STDIN_FILENO, STDOUT_FILENO);
  return status.ok() ? kDone : ReportError(status);
}

}  // namespace

Command HostGuardCommand() {
  CommandSpec spec;
  spec.name = "host-guard";
  spec.summary =
      "Starts and ends the daemons of a host for `sluice launch --hosts`, which runs it.";
  return {spec, &Guard};
}

}  // namespace sluice::cli
