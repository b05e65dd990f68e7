// sluice checkpoint: makes a checkpoint of a running job.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/jobs/checkpoint_request.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {
namespace {

int Checkpoint(const ParsedCommand& command) {
  if (command.words.empty()) {
    return ReportError(absl::InvalidArgumentError(
        "no job id is given; run sluice checkpoint JOB_ID (sluice status lists the ids)"));
  }
  const auto connected = ConnectToScheduler(command, Clock::Real());
  if (!connected.ok()) return ReportError(connected.status());
  const auto reply =
      RequestCheckpoint(command.words[0], command.Switch("wait"), connected->get(), Clock::Real());
  if (!reply.ok()) return ReportError(reply.status());
  if (reply->done()) {
    std::cout << "checkpoint of step " << reply->step() << ": " << reply->dir() << std::endl;
  } else {
    std::cout << "checkpoint " << reply->number() << " of " << command.words[0] << " was requested"
              << std::endl;
  }
  return kDone;
}

}  // namespace

Command CheckpointCommand() {
  CommandSpec spec;
  spec.name = "checkpoint";
  spec.summary = "Makes a checkpoint of a running job now, and waits until it is complete.";
  spec.words = "JOB_ID";
  spec.max_words = 1;
  spec.flags = SchedulerFlags();
  spec.flags.push_back({"wait", FlagKind::kBool, "BOOL", "true", "wait until it is complete"});
  spec.examples = "  sluice checkpoint adult-3\n";
  return {spec, &Checkpoint};
}

}  // namespace sluice::cli
