// sluice status: prints the state of a cluster.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/jobs/dashboard_address.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/progress.h"
#include "cli/screen/status_text.h"
#include "common/admin/status_json.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/daemon/process_info.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kWatchEvery = absl::Seconds(2);

const JobStatus* FindJob(const ClusterStatus& status, const std::string& job_id) {
  for (const JobStatus& job : status.jobs()) {
    if (job.job_id() == job_id) return &job;
  }
  return nullptr;
}

absl::Status NoJob(const ClusterStatus& status, const std::string& job_id) {
  std::string known;
  for (const JobStatus& job : status.jobs())
    absl::StrAppend(&known, known.empty() ? "" : ", ", job.job_id());
  return absl::NotFoundError(
      absl::StrCat("the cluster knows no job '", job_id, "'; ",
                   known.empty() ? "it has no jobs" : absl::StrCat("its jobs are ", known)));
}

// The line that says where the dashboard is. A browser needs the command where it would need a
// certificate, or where the scheduler's admin port is on the loopback of another host.
std::string DashboardOf(const ParsedCommand& command, const ClusterStatus& status) {
  const MemberStatus& scheduler = status.scheduler();
  const bool elsewhere = scheduler.host() != HostName();
  const bool tls = OperatorFiles(command, FindScheduler(command).value_or("")).given();
  const std::string line =
      DashboardLine(PrintableLine(scheduler.admin_address()), tls || elsewhere, "");
  return line.empty() ? "" : absl::StrCat("\n", line, "\n");
}

int Status(const ParsedCommand& command) {
  const bool watch = command.Switch("watch"), json = command.Switch("json");
  if (watch && json) {
    return ReportError(absl::InvalidArgumentError(
        "--watch shows the status to a person, and --json is for programs; give one of them"));
  }
  const auto client = ConnectToScheduler(command, Clock::Real());
  if (!client.ok()) return ReportError(client.status());
  const std::string job_id = command.words.empty() ? "" : command.words[0];
  const Screen screen = StandardScreen();
  // With --watch, until a signal, the end of the job, or a reader that goes away.
  for (;;) {
    const auto status = (*client)->GetStatus();
    if (!status.ok()) return ReportError(status.status());
    const JobStatus* const job = job_id.empty() ? nullptr : FindJob(*status, job_id);
    if (!job_id.empty() && job == nullptr) return ReportError(NoJob(*status, job_id));
    if (json) {
      std::cout << (job == nullptr ? StatusJson(*status) : StatusJson(*job));
      return kDone;
    }
    // The screen is cleared only now, so that it does not flicker while the scheduler answers.
    if (watch && screen.escapes) std::cout << "\x1b[H\x1b[2J";
    std::cout << (job == nullptr ? StatusText(*status, screen.escapes)
                                 : StatusOfJob(*status, job_id, screen.escapes));
    if (job == nullptr) std::cout << DashboardOf(command, *status);
    if (!watch || (job != nullptr && HasEnded(job->state()))) return kDone;
    if (!screen.escapes) std::cout << "\n";
    if (!std::cout.flush()) return kDone;
    Clock::Real()->Sleep(kWatchEvery);
  }
}

}  // namespace

Command StatusCommand() {
  CommandSpec spec;
  spec.name = "status";
  spec.summary =
      "Shows the members, tables and jobs of a cluster, their progress and what they wait for.";
  spec.words = "[JOB_ID]";
  spec.max_words = 1;
  spec.only_prints = true;
  spec.flags = SchedulerFlags();
  spec.flags.push_back({"json", FlagKind::kBool, "", "",
                        "print the status as JSON: numbers, and states and roles as words"});
  spec.flags.push_back({"watch", FlagKind::kBool, "", "",
                        "show it again every 2 seconds, until Ctrl-C or the end of JOB_ID"});
  spec.examples =
      "  sluice status\n"
      "  sluice status adult-1 --watch\n"
      "  sluice status --scheduler=10.0.0.1:7100 --insecure --json\n";
  return {spec, &Status};
}

}  // namespace sluice::cli
