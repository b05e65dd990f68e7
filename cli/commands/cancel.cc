// sluice cancel: ends a job.
#include <iostream>

#include "cli/commands/commands.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {
namespace {

int Cancel(const ParsedCommand& command) {
  if (command.words.empty()) {
    return ReportError(absl::InvalidArgumentError(
        "no job id is given; run sluice cancel JOB_ID (sluice status lists the ids)"));
  }
  const auto connected = ConnectToScheduler(command, Clock::Real());
  if (!connected.ok()) return ReportError(connected.status());
  SchedulerClient* const client = connected->get();
  CancelJobRequest request;
  request.set_job_id(command.words[0]);
  const absl::Status status = client->CancelJob(request);
  if (!status.ok()) return ReportError(status);
  std::cout << "cancelled " << command.words[0] << std::endl;
  return kDone;
}

}  // namespace

Command CancelCommand() {
  CommandSpec spec;
  spec.name = "cancel";
  spec.summary = "Ends a job, queued or running.";
  spec.words = "JOB_ID";
  spec.max_words = 1;
  spec.flags = SchedulerFlags();
  spec.examples = "  sluice cancel adult-3\n";
  return {spec, &Cancel};
}

}  // namespace sluice::cli
