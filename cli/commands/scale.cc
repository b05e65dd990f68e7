// sluice scale: lets a running job continue with another number of workers.
#include <iostream>

#include "cli/commands/commands.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {
namespace {

int Scale(const ParsedCommand& command) {
  if (command.words.empty()) {
    return ReportError(absl::InvalidArgumentError(
        "no job id is given; run sluice scale JOB_ID --worker_num=N (sluice status lists the "
        "ids)"));
  }
  const long worker_num = command.Number("worker_num");
  if (!command.Given("worker_num") || worker_num < 1 || worker_num > 1'000'000) {
    return ReportError(
        absl::InvalidArgumentError("give --worker_num=N, the number of workers from now on, at "
                                   "least 1"));
  }
  const auto connected = ConnectToScheduler(command, Clock::Real());
  if (!connected.ok()) return ReportError(connected.status());
  SchedulerClient* const client = connected->get();
  ScaleJobRequest request;
  request.set_job_id(command.words[0]);
  request.set_worker_num(static_cast<uint32_t>(worker_num));
  const absl::Status scaled = client->ScaleJob(request);
  if (absl::IsAlreadyExists(scaled)) {
    std::cout << PrintableLine(scaled.message()) << std::endl;
    return kDone;
  }
  if (!scaled.ok()) return ReportError(scaled);
  std::cout << command.words[0] << " makes a checkpoint and continues from it with "
            << Counted(request.worker_num(), "worker") << std::endl;
  return kDone;
}

}  // namespace

Command ScaleCommand() {
  CommandSpec spec;
  spec.name = "scale";
  spec.summary = "Changes the number of workers of a running job.";
  spec.words = "JOB_ID";
  spec.max_words = 1;
  spec.flags = SchedulerFlags();
  spec.flags.push_back(
      {"worker_num", FlagKind::kNumber, "N", "", "new number; additional workers must be free"});
  spec.examples = "  sluice scale adult-3 --worker_num=4\n";
  return {spec, &Scale};
}

}  // namespace sluice::cli
