// sluice submit: gives a job to a running cluster.
#include <atomic>
#include <iostream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "cli/commands/commands.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/job_files.h"
#include "cli/jobs/job_submission.h"
#include "cli/jobs/output_files.h"
#include "cli/jobs/resume_hint.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/job_summary.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/clock.h"
#include "common/config/address.h"
#include "common/config/job_config.h"
#include "common/daemon/identity.h"
#include "common/daemon/stop_signal.h"
#include "common/places/places_env.h"

namespace sluice::cli {
namespace {

int Follow(const ParsedCommand& command, const JobConfig& job, SchedulerClient* client,
           const std::string& job_id, ProgressMode mode, const Screen& screen) {
  ProgressPrinter printer(mode, &std::cout, screen.escapes);
  std::atomic<bool> interrupted{false}, impatient{false}, ended{false};
  std::thread watcher([&] {
    WatchOptions watch;
    watch.clock = Clock::Real();
    watch.client = client;
    watch.job_id = job_id;
    watch.printer = &printer;
    watch.unreachable_after = kRestartPatience;
    watch.interrupted = [&interrupted] { return interrupted.load(); };
    watch.cancel_on_interrupt = command.Switch("cancel_on_interrupt");
    watch.impatient = [&impatient] { return impatient.load(); };
    watch.saves_nothing = WhyNothingIsSaved(job);
    const auto status = WatchUntilEnd(watch);
    if (status.ok() && HasEnded(status->state())) printer.Finish(*status);
    // Ctrl-C has ended the watching, not the job.
    if (status.ok() && !HasEnded(status->state())) {
      printer.Note(absl::StrCat("the job keeps running; sluice cancel ", job_id, " ends it"));
      StopSignal::Stop(kDone);
    } else {
      const int code = ReportEnd(status);
      if (interrupted && status.ok()) PrintNote(ResumeHint("submit", command, job, *status));
      StopSignal::Stop(code);
    }
    ended = true;
  });
  const int code = StopSignal::Wait();
  if (StopSignal::Received() != 0)
    StopSignal::AllowMore(static_cast<int>(absl::ToInt64Seconds(WatchOptions().save_grace)));
  interrupted = true;
  // A second signal must not leave the job running: it cancels it without a checkpoint. A third one
  // ends this process at once.
  if (StopSignal::Received() != 0 && command.Switch("cancel_on_interrupt"))
    impatient = StopSignal::WaitForSecond([&ended] { return ended.load(); });
  watcher.join();
  return code;
}

int Submit(const ParsedCommand& command) {
  const auto job = JobFromFlags(command);
  if (!job.ok()) return ReportError(job.status());
  const Screen screen = StandardScreen();
  const auto mode = ParseProgressMode(command.Text("progress"), screen.live);
  if (!mode.ok()) return ReportError(mode.status());
  if (const absl::Status kept = CheckJobKeepsInputs(*job, command.Text("job"), AllPlaces());
      !kept.ok()) {
    return ReportError(kept);
  }
  const auto request = SubmissionFromFlags(command, *job);
  if (!request.ok()) return ReportError(request.status());
  const bool dry_run = command.Switch("dry_run");
  const auto address = FindRunningScheduler(command, Clock::Real());
  if (!address.ok() && !dry_run) return ReportError(address.status());
  // A scheduler at a loopback address runs on this host and writes the output here. A dry run
  // without a scheduler assumes the same.
  DataCheckReport data;
  const auto at = ParseAddressList(address.ok() ? *address : "");
  if (!at.ok() || AllLoopback(*at)) {
    absl::Status files = CheckOutputIsNoFile(*job);
    if (files.ok()) files = CheckJobOutputs(*job, command.Text("job"), AllPlaces());
    // The scheduler checks these, too, and knows the running job that has the folder.
    if (files.ok() && dry_run) files = CheckKeepsUnfinished(*request, AllPlaces());
    if (files.ok() && dry_run) files = CheckCanResume(*request, AllPlaces());
    // Only a dry run requires the data: the address may be a forwarded port, and the data may be on
    // the cluster's hosts only.
    if (files.ok() && dry_run) files = CheckDataIsHere(*job);
    if (files.ok() && dry_run) {
      DataCheckOptions others;
      others.other_reader = true;
      files = CheckDataLines(JobToCheck(*request), AllPlaces(), others, &data, &PrintOnStderr);
    }
    if (files.ok()) files = CheckWhatIsHere(JobToCheck(*request), AllPlaces());
    if (!files.ok()) return ReportError(files);
  }
  for (const std::string& note : NotesOf(*request, AllPlaces()))
    PrintOnStderr(absl::StrCat("note: ", note));
  if (dry_run) {
    for (const std::string& line : data.coverage) PrintOnStderr(absl::StrCat("note: ", line));
    for (const std::string& line : ModelLines(*job)) PrintOnStderr(line);
    for (const std::string& warning : data.warnings)
      PrintOnStderr(absl::StrCat("warning: ", warning));
    for (const std::string& warning : WarningsOf(*request, AllPlaces()))
      PrintOnStderr(absl::StrCat("warning: ", warning));
    std::cout << ToTextproto(*job);
    return kDone;
  }
  // Signals are blocked before the first thread starts, because threads inherit the mask.
  const bool wait = command.Switch("wait") && !command.Switch("detach");
  if (wait) StopSignal::Install(false);
  const auto credentials = OperatorCredentials(command, *address);
  if (!credentials.ok()) return ReportError(credentials.status());
  const auto client = SchedulerClient::Create(*address, Clock::Real(), *credentials);
  const absl::Status ready =
      client->WaitReady(absl::Seconds(10), [](const std::string& line) { PrintOnStderr(line); });
  if (!ready.ok()) return ReportError(ready);
  const auto submitted =
      SubmitJob(client.get(), *request, kRestartPatience, nullptr, Clock::Real());
  if (!submitted.ok()) return ReportError(submitted.status());
  PrintJob(absl::StrCat("submitted ", submitted->job_id(), " (", Describe(*job), ")"), *job,
           &std::cout);
  std::cout << DescribeOutput(*job, submitted->job_id()) << std::endl;
  if (!wait) {
    std::cout << submitted->job_id() << std::endl;  // the last line, for scripts
    return kDone;
  }
  return Follow(command, *job, client.get(), submitted->job_id(), *mode, screen);
}

}  // namespace

Command SubmitCommand() {
  CommandSpec spec;
  spec.name = "submit";
  spec.summary = "Gives a job to a running cluster and, unless detached, follows it to its end.";
  spec.flags = JobFlags();
  for (FlagSpec& flag : SchedulerFlags()) spec.flags.push_back(std::move(flag));
  spec.flags.push_back(
      {"wait", FlagKind::kBool, "BOOL", "true", "follow the job; Ctrl-C then leaves it running"});
  spec.flags.push_back({"detach", FlagKind::kBool, "", "",
                        "return at once (--nowait); the last line printed is the job id"});
  spec.flags.push_back({"cancel_on_interrupt", FlagKind::kBool, "", "",
                        "Ctrl-C cancels the job, which saves a checkpoint first"});
  spec.examples =
      "  sluice submit --job=configs/adult_wide_deep.textproto\n"
      "  sluice submit --job=J --k_steps=20 --detach --scheduler=10.0.0.1:7100 --insecure\n";
  return {spec, &Submit};
}

}  // namespace sluice::cli
