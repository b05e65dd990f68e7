// sluice down: stops a cluster.
#include <signal.h>

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/jobs/end_jobs.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "common/base/clock.h"
#include "common/daemon/scheduler_client.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kStopTimeout = absl::Seconds(20);

int CountAlive(const std::vector<Endpoint>& endpoints) {
  int alive = 0;
  for (const Endpoint& e : endpoints) alive += IsAlive(e) ? 1 : 0;
  return alive;
}

bool AwaitEnd(const std::vector<Endpoint>& endpoints, absl::Duration time) {
  const absl::Time deadline = Clock::Real()->Now() + time;
  while (CountAlive(endpoints) > 0) {
    if (Clock::Real()->Now() >= deadline) return false;
    Clock::Real()->Sleep(absl::Milliseconds(20));
  }
  return true;
}

// Waits until no scheduler answers at `address`.
absl::Status AwaitSilence(const std::string& address, const GrpcCredentials& credentials) {
  const absl::Time deadline = Clock::Real()->Now() + kStopTimeout;
  while (Clock::Real()->Now() < deadline) {
    // Each try uses a new channel: one that was connected would pause before it reconnects.
    const auto client = SchedulerClient::Create(address, Clock::Real(), credentials);
    if (!client->GetStatus().ok()) return absl::OkStatus();
    Clock::Real()->Sleep(absl::Milliseconds(50));
  }
  return absl::InternalError(absl::StrCat("the scheduler at ", address,
                                          " was told to stop but still answers after ",
                                          absl::FormatDuration(kStopTimeout), "; see its log"));
}

void SignalAll(const std::vector<Endpoint>& endpoints, int signal) {
  for (const Endpoint& e : endpoints) {
    if (IsAlive(e)) kill(e.pid, signal);
  }
}

int Down(const ParsedCommand& command) {
  const auto address = FindScheduler(command);
  if (!address.ok()) return ReportError(address.status());
  // Local processes may be signalled only when the file names this very scheduler: otherwise they
  // belong to another cluster.
  std::vector<Endpoint> endpoints = ReadEndpoints(LogDirOf(command));
  bool ours = false;
  for (const Endpoint& e : endpoints)
    ours = ours || (e.role == "scheduler" && e.address == *address);
  if (!ours) endpoints.clear();
  if (ours && CountAlive(endpoints) == 0) {
    std::cout << "no process of the cluster in " << LogDirOf(command) << " is running" << std::endl;
    return kDone;
  }
  const auto credentials = OperatorCredentials(command, *address);
  if (!credentials.ok()) return ReportError(credentials.status());
  const auto client = SchedulerClient::Create(*address, Clock::Real(), *credentials);
  EndJobsOptions jobs;
  jobs.clock = Clock::Real();
  jobs.client = client.get();
  if (command.Switch("now")) jobs.save_grace = absl::ZeroDuration();
  jobs.say = [](const std::string& line) { std::cout << line << std::endl; };
  EndJobs(jobs);
  const absl::Status status = client->Shutdown();
  if (!status.ok() && endpoints.empty()) return ReportError(status);
  // The scheduler ends after all its members.
  if (status.ok() && endpoints.empty()) {
    const absl::Status ended = AwaitSilence(*address, *credentials);
    if (!ended.ok()) return ReportError(ended);
  }
  if (status.ok() && AwaitEnd(endpoints, kStopTimeout)) {
    std::cout << "cluster of scheduler " << *address << " is down" << std::endl;
    return kDone;
  }
  PrintNote(absl::StrCat(
      status.ok() ? "not all processes stopped in time" : std::string(status.message()),
      "; ending the rest by signals"));
  // First the supervisor, which would start the others again.
  std::vector<Endpoint> supervisors;
  for (const Endpoint& e : endpoints) {
    if (e.role == kSupervisorRole) supervisors.push_back(e);
  }
  SignalAll(supervisors, SIGKILL);
  AwaitEnd(supervisors, absl::Seconds(5));
  endpoints = ReadEndpoints(LogDirOf(command));  // with those that it has started meanwhile
  SignalAll(endpoints, SIGTERM);
  if (!AwaitEnd(endpoints, absl::Seconds(5))) SignalAll(endpoints, SIGKILL);
  return AwaitEnd(endpoints, absl::Seconds(5)) ? kDone : kJobFailed;
}

}  // namespace

Command DownCommand() {
  CommandSpec spec;
  spec.name = "down";
  spec.summary = "Cancels all jobs of a cluster, each after a checkpoint, and stops its processes.";
  spec.flags = SchedulerFlags();
  spec.flags.push_back(
      {"now", FlagKind::kBool, "", "", "do not wait for checkpoints of the running jobs"});
  spec.examples =
      "  sluice down\n"
      "  sluice down --scheduler=10.0.0.1:7100 --insecure\n";
  return {spec, &Down};
}

}  // namespace sluice::cli
