// sluice checkpoint: makes a checkpoint of a running job.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/commands/commands.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"
#include "common/transport/retry.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kWaitMs = 5000;
constexpr absl::Duration kCheckpointPause = absl::Milliseconds(300);  // between two questions

int Checkpoint(const ParsedCommand& command) {
  if (command.words.empty()) {
    return ReportError(absl::InvalidArgumentError(
        "no job id is given; run sluice checkpoint JOB_ID (sluice status lists the ids)"));
  }
  const auto connected = ConnectToScheduler(command, Clock::Real());
  if (!connected.ok()) return ReportError(connected.status());
  SchedulerClient* const client = connected->get();
  CheckpointJobRequest request;
  request.set_job_id(command.words[0]);
  request.set_wait_ms(command.Switch("wait") ? kWaitMs : 0);
  SilenceTimer silence;
  for (;;) {
    const auto reply = client->CheckpointJob(request);
    if (!reply.ok()) {
      if (!GotNoAnswer(reply.status()) ||
          silence.Unanswered(Clock::Real()->Now()) >= kTakeoverPatience) {
        return ReportError(reply.status());
      }
      // Another scheduler may answer next, and it does not know the number that this one gave.
      request.set_number(0);
      Clock::Real()->Sleep(kCheckpointPause);
      continue;
    }
    silence.Answered();
    if (reply->done() && !reply->error().empty()) {
      return ReportError(absl::InternalError(
          absl::StrCat("the checkpoint of job ", command.words[0], " failed: ", reply->error())));
    }
    if (reply->done()) {
      std::cout << "checkpoint of step " << reply->step() << ": " << reply->dir() << std::endl;
      return kDone;
    }
    // With --nowait the order counts, not its end.
    if (request.wait_ms() == 0) {
      std::cout << "checkpoint " << reply->number() << " of " << command.words[0]
                << " was requested" << std::endl;
      return kDone;
    }
    // The next question is about the checkpoint that this one has started, and starts no other.
    request.set_number(reply->number());
  }
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
