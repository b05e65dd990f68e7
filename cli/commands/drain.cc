// sluice drain: moves the shards of a pserver to others.
#include <iostream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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

constexpr absl::Duration kDrainPause = absl::Milliseconds(300);  // between two questions

int Drain(const ParsedCommand& command) {
  uint32_t rank = 0;
  if (command.words.empty() || !absl::SimpleAtoi(command.words[0], &rank)) {
    return ReportError(absl::InvalidArgumentError(
        "give the rank of a pserver: sluice drain 1 (sluice status lists the pservers)"));
  }
  const auto connected = ConnectToScheduler(command, Clock::Real());
  if (!connected.ok()) return ReportError(connected.status());
  SchedulerClient* const client = connected->get();
  DrainPserverRequest request;
  request.set_rank(rank);
  request.set_cancel(command.Switch("cancel"));
  SilenceTimer silence;
  // Every question repeats the order, so that a scheduler that has just taken over learns of it.
  for (std::string told;;) {
    const auto reply = client->DrainPserver(request);
    if (!reply.ok()) {
      if (!GotNoAnswer(reply.status()) ||
          silence.Unanswered(Clock::Real()->Now()) >= kTakeoverPatience) {
        return ReportError(reply.status());
      }
      Clock::Real()->Sleep(kDrainPause);
      continue;
    }
    silence.Answered();
    if (request.cancel()) {
      std::cout << "pserver " << rank << " may be used again" << std::endl;
      return kDone;
    }
    if (reply->jobs().empty()) {
      std::cout << "no job has shards on pserver " << rank << "; it may be stopped" << std::endl;
      return kDone;
    }
    if (!reply->failure().empty()) {
      return ReportError(absl::FailedPreconditionError(
          absl::StrCat("pserver ", rank, " keeps its shards: ", reply->failure(),
                       "; repeat the command to try again")));
    }
    const std::string jobs = absl::StrJoin(reply->jobs(), ", ");
    if (jobs != told) std::cout << "the shards of " << jobs << " move" << std::endl;
    told = jobs;
    if (!command.Switch("wait")) return kDone;
    Clock::Real()->Sleep(kDrainPause);
  }
}

}  // namespace

Command DrainCommand() {
  CommandSpec spec;
  spec.name = "drain";
  spec.summary = "Moves the shards of a pserver to others, so that it can be stopped.";
  spec.words = "RANK";
  spec.max_words = 1;
  spec.flags = SchedulerFlags();
  spec.flags.push_back(
      {"wait", FlagKind::kBool, "BOOL", "true", "wait until no job has shards there"});
  spec.flags.push_back({"cancel", FlagKind::kBool, "BOOL", "false", "use the pserver again"});
  spec.examples = "  sluice drain 1\n  sluice drain 1 --cancel\n";
  return {spec, &Drain};
}

}  // namespace sluice::cli
