// sluice launch: runs one job on a local cluster.
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iostream>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/local_cluster.h"
#include "cli/commands/commands.h"
#include "cli/jobs/interruption.h"
#include "cli/jobs/job_files.h"
#include "cli/jobs/job_submission.h"
#include "cli/jobs/output_files.h"
#include "cli/jobs/progress_stream.h"
#include "cli/jobs/resume_hint.h"
#include "cli/jobs/watch_job.h"
#include "cli/plan/cost_measurement.h"
#include "cli/plan/measured_job.h"
#include "cli/plan/plan_search.h"
#include "cli/plan/plan_text.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "cli/screen/job_summary.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/clock.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/mode.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/identity.h"
#include "common/daemon/stop_signal.h"
#include "model/built_in_models.h"
#include "model/without_pservers.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kLaunchReadyTimeout = absl::Seconds(30);
constexpr absl::Duration kStopGrace = absl::Seconds(6);
constexpr char kAuto[] = "auto";

// Where the progress of the job is shown.
struct Viewers {
  ProgressPrinter* printer = nullptr;
  ProgressStream* stream = nullptr;  // null: without --progress_fd
};

// Submits the job and follows it. Runs on the main thread, since it starts processes again.
int RunJob(const ParsedCommand& command, const SubmitJobRequest& request,
           const LimitsConfig& limits, LocalCluster* cluster, const Viewers& viewers,
           Interruption* interruption) {
  ProgressPrinter* const printer = viewers.printer;
  const auto client =
      SchedulerClient::Create(cluster->scheduler(), Clock::Real(), cluster->credentials());
  const auto note = [printer](const std::string& line) { printer->Note(line); };
  // The scheduler first: members that die before they have registered would die again.
  cluster->SuperviseScheduler(note);
  if (absl::Status ready = client->WaitReady(kLaunchReadyTimeout, note); !ready.ok()) {
    const absl::Status why = cluster->CheckProcesses();
    return ReportError(why.ok() ? ready : why);
  }
  // Members bear a silent scheduler for this long, so the launcher does, too.
  const absl::Duration patience = std::max(SchedulerPatience(absl::Milliseconds(limits.lease_ms())),
                                           absl::Duration(absl::Seconds(limits.wait_s())));
  const auto submitted = SubmitJob(
      client.get(), request, patience, [cluster] { return cluster->CheckProcesses(); },
      Clock::Real());
  int code = kJobFailed;
  if (submitted.ok()) {
    printer->Note(DescribeOutput(request.config(), submitted->job_id()));
    WatchOptions watch;
    watch.clock = Clock::Real();
    watch.client = client.get();
    watch.job_id = submitted->job_id();
    watch.printer = printer;
    watch.on_status = [interruption, viewers](const JobStatus& status) {
      if (viewers.stream != nullptr) viewers.stream->Update(status);
      interruption->SetCheckpoint(PrintableLine(status.checkpoint().dir()));
    };
    watch.check_cluster = [cluster] { return cluster->CheckProcesses(); };
    watch.on_started = [cluster, note] { cluster->Supervise(note); };
    watch.explain = [cluster](const std::string& message) { return cluster->Explain(message); };
    watch.hopeless = [cluster] { return cluster->SchedulerIsLost() || cluster->gave_up(); };
    watch.interrupted = [interruption] { return interruption->came(); };
    watch.cancel_on_interrupt = true;
    watch.saves_nothing = WhyNothingIsSaved(request.config());
    // check_cluster notices a scheduler that has ended. One that is silent but alive may have been
    // stopped for a while.
    watch.unreachable_after = patience;
    const auto status = WatchUntilEnd(watch);
    if (status.ok()) printer->Finish(*status);
    if (status.ok() && viewers.stream != nullptr) viewers.stream->Finish(*status);
    code = ReportEnd(status);
    if (interruption->came() && status.ok())
      PrintNote(ResumeHint("launch", command, request.config(), *status));
  } else {
    const absl::Status why = cluster->CheckProcesses();
    code = ReportError(why.ok() ? submitted.status() : why);
  }
  // If the scheduler does not answer, LocalCluster::Stop ends the processes by signals.
  (void)client->Shutdown();
  return code;
}

bool ChoosesPservers(const ParsedCommand& command) { return command.Text("server_num") == kAuto; }

// Loads the job. --gpus and --cpu_workers, when given, set its worker_num; --server_num=0 sets what
// a job without pservers needs.
absl::StatusOr<JobConfig> JobToLaunch(const ParsedCommand& command) {
  SLUICE_ASSIGN_OR_RETURN(const uint32_t workers, WorkersOfGpus(command));
  std::vector<ConfigOverride> overrides;
  if (workers > 0) overrides.push_back({"worker_num", absl::StrCat(workers), "--gpus"});
  SLUICE_ASSIGN_OR_RETURN(JobConfig job, JobFromFlags(command, overrides));
  if (!ChoosesPservers(command) && command.Number("server_num") == 0)
    SLUICE_RETURN_IF_ERROR(FitWithoutPservers(BuiltInSpecs(), &job).status());
  return job;
}

absl::StatusOr<LocalCluster::Options> ClusterOptions(const ParsedCommand& command,
                                                     const JobConfig& job) {
  const long server_num = ChoosesPservers(command) ? 1 : command.Number("server_num");
  if (server_num < 0 || server_num > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server_num=", server_num, " is out of range; give 0 to 1000 pservers"));
  }
  if (ChoosesPservers(command) && job.evaluate_only()) {
    return absl::InvalidArgumentError(
        "--server_num=auto measures training, and evaluate_only trains nothing; give a number");
  }
  if (job.worker_num() > 1000) {
    return absl::InvalidArgumentError(absl::StrCat("--worker_num=", job.worker_num(),
                                                   " is too many for one host; give at most 1000"));
  }
  SLUICE_ASSIGN_OR_RETURN(WorkerDevices devices, DevicesOfWorkers(command, job.worker_num()));
  SLUICE_RETURN_IF_ERROR(CheckJobOnDevices(job, devices));
  LocalCluster::Options options;
  options.clock = Clock::Real();
  options.config = LoopbackCluster("127.0.0.1:0", static_cast<int>(server_num),
                                   static_cast<int>(job.worker_num()));
  SLUICE_RETURN_IF_ERROR(SetLease(command, &options.config));
  SLUICE_ASSIGN_OR_RETURN(options.server_threads, ServerThreads(command));
  SLUICE_ASSIGN_OR_RETURN(options.transport, TransportOf(command));
  SLUICE_ASSIGN_OR_RETURN(options.log_limits, LogLimitsOf(command));
  options.threads = ThreadsPerWorker(static_cast<int>(job.worker_num()));
  options.devices = std::move(devices);
  options.tls = command.Switch("tls");
  return options;
}

// The number of pservers for the job: none if it has no tables for them, else from a measurement
// (sluice plan).
absl::StatusOr<uint32_t> PserversFor(const JobConfig& job, const LocalCluster::Options& options) {
  SLUICE_ASSIGN_OR_RETURN(const bool none, NeedsNoPservers(BuiltInSpecs(), job));
  if (none) return 0;
  plan::MeasurementOptions measurement;
  measurement.with_geo = ModeOf(job.strategy()) == Mode::kGeo;
  measurement.cluster.clock = Clock::Real();
  measurement.cluster.device = options.devices.by_rank.front();
  measurement.cluster.server_threads = options.server_threads;
  measurement.cluster.transport = options.transport;
  measurement.cluster.tls = options.tls;
  measurement.cluster.note = [](const std::string& line) { std::cout << line << std::endl; };
  SLUICE_ASSIGN_OR_RETURN(const PlanCosts costs, plan::MeasureCosts(job, measurement));
  std::cout << plan::CostsText(costs);
  return plan::PserversFor(costs, plan::PlanModeOf(job), job.worker_num(), costs.cores());
}

absl::Status ChoosePservers(const JobConfig& job, LocalCluster::Options* options) {
  SLUICE_ASSIGN_OR_RETURN(const uint32_t pservers, PserversFor(job, *options));
  std::cout << "--server_num=auto chooses " << Counted(pservers, "pserver") << " for "
            << Counted(job.worker_num(), "worker") << std::endl;
  // LoopbackCluster makes default limits; the flags have already changed them.
  const ClusterConfig limits = options->config;
  options->config = LoopbackCluster("127.0.0.1:0", static_cast<int>(pservers),
                                    static_cast<int>(job.worker_num()));
  *options->config.mutable_limits() = limits.limits();
  return absl::OkStatus();
}

// Uses or refuses the folder that --log_dir names. Without the flag, every launch gets a folder of
// its own.
absl::StatusOr<LogFolder> LogsOf(const ParsedCommand& command) {
  const std::string folder = command.Text("log_dir");
  return command.Given("log_dir") ? LogFolder::Take(folder, Env::Real())
                                  : LogFolder::TakeOrNext(folder, Env::Real());
}

// Null without --progress_fd.
absl::StatusOr<std::unique_ptr<ProgressStream>> StreamOf(const ParsedCommand& command) {
  if (!command.Given("progress_fd")) return nullptr;
  return ProgressStream::Open(command.Number("progress_fd"));
}

// Checks what Launch checks before it starts anything, and prints the effective job.
int DryRun(const JobConfig& job, const SubmitJobRequest& request, const WorkerDevices& devices,
           const DataCheckReport& data) {
  absl::Status there = CheckDevices(devices);
  if (there.ok()) there = CheckWeightsOnDevices(job, devices);
  if (!there.ok()) return ReportError(there);
  for (const std::string& line : data.coverage) PrintOnStderr(absl::StrCat("note: ", line));
  for (const std::string& line : ModelLines(job)) PrintOnStderr(line);
  for (const std::string& warning : WarningsOf(request, Env::Real()))
    PrintOnStderr(absl::StrCat("warning: ", warning));
  std::cout << ToTextproto(job);
  return kDone;
}

// Prints the job, its cluster and the folder of the logs.
void PrintLaunch(const ParsedCommand& command, const JobConfig& job, int pservers,
                 const std::string& logs) {
  const std::string wanted = command.Text("log_dir");
  PrintJob(absl::StrCat(
               Describe(job), ", ", Counted(pservers, "pserver"), "; logs in ", logs,
               logs == wanted ? "" : absl::StrCat(" (", wanted, " belongs to a running cluster)")),
           job, &std::cout);
  if (pservers == 0) std::cout << "no pservers: the workers keep all tables (COLLECTIVE)\n";
}

// Checks what the job reads and writes. `job_file`: where the job is from.
absl::Status CheckFiles(const SubmitJobRequest& request, const std::string& job_file,
                        DataCheckReport* data) {
  Env* const env = Env::Real();
  SLUICE_RETURN_IF_ERROR(CheckJobFiles(JobToCheck(request), "output", env, data));
  SLUICE_RETURN_IF_ERROR(CheckJobOutputs(request.config(), job_file, env));
  SLUICE_RETURN_IF_ERROR(CheckKeepsUnfinished(request, env));
  return CheckCanResume(request, env);
}

// Calls `run`, and then stops the cluster. Returns the exit code of `run`, or that of a signal that
// came first.
int RunAndStop(LocalCluster* cluster, ProgressMode mode,
               const std::function<int(Interruption* interruption)>& run) {
  // It lives until the cluster has stopped, which a second signal may still cut short.
  Interruption interruption(WatchOptions().save_grace, mode == ProgressMode::kLive);
  const int job_code = run(&interruption);
  const int code = interruption.End(job_code);
  // Nobody tells the members of a dead scheduler to stop, so there is no point in waiting for them.
  cluster->Stop(cluster->SchedulerIsLost() && job_code != kDone ? absl::ZeroDuration()
                                                                : kStopGrace);
  return code;
}

int Launch(const ParsedCommand& command) {
  const auto job = JobToLaunch(command);
  if (!job.ok()) return ReportError(job.status());
  const Screen screen = StandardScreen();
  const auto mode = ParseProgressMode(command.Text("progress"), screen.live);
  if (!mode.ok()) return ReportError(mode.status());
  const auto request = SubmissionFromFlags(command, *job);
  if (!request.ok()) return ReportError(request.status());
  auto options = ClusterOptions(command, *job);
  if (!options.ok()) return ReportError(options.status());
  DataCheckReport data;
  const absl::Status files = CheckFiles(*request, command.Text("job"), &data);
  if (!files.ok()) return ReportError(files);
  for (const std::string& warning : data.warnings)
    PrintOnStderr(absl::StrCat("warning: ", warning));
  if (command.Switch("dry_run")) return DryRun(*job, *request, options->devices, data);
  // This comes before any thread starts, because threads inherit the blocked signals.
  StopSignal::Install(false);
  const auto stream = StreamOf(command);
  if (!stream.ok()) return ReportError(stream.status());
  std::string gpus;
  absl::Status there = CheckDevices(options->devices, &ListCudaDevices, &gpus);
  if (there.ok()) there = CheckWeightsOnDevices(*job, options->devices);
  if (!there.ok()) return ReportError(there);
  if (ChoosesPservers(command)) {
    const absl::Status chosen = ChoosePservers(*job, &*options);
    if (absl::IsCancelled(chosen)) return StopSignal::Wait();
    if (!chosen.ok()) return ReportError(chosen);
  }
  // This comes after all checks, so that a launch that starts nothing takes no folder.
  auto logs = LogsOf(command);
  if (!logs.ok()) return ReportError(logs.status());
  PrintLaunch(command, *job, options->config.pservers_size(), logs->path());
  std::cout << gpus << std::flush;

  options->logs = *std::move(logs);
  const LimitsConfig limits = options->config.limits();
  auto cluster = LocalCluster::Start(*std::move(options));
  if (!cluster.ok() && !absl::IsCancelled(cluster.status())) return ReportError(cluster.status());
  if (!cluster.ok()) return StopSignal::Wait();
  ProgressPrinter printer(*mode, &std::cout, screen.escapes);
  return RunAndStop(cluster->get(), *mode, [&](Interruption* interruption) {
    return RunJob(command, *request, limits, cluster->get(), {&printer, stream->get()},
                  interruption);
  });
}

// ---------------------------------------------------------------------------------------- programs

constexpr absl::Duration kLookForJob = absl::Milliseconds(50);
// How long the first program has to end by itself after another one has ended.
constexpr absl::Duration kFirstEndsToo = absl::Seconds(2);

// The path of an executable as a shell finds it. NOT_FOUND: there is none.
absl::StatusOr<std::string> FindExecutable(const std::string& name) {
  if (absl::StrContains(name, '/')) return name;
  const char* const path = std::getenv("PATH");
  for (const absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    const std::string file = absl::StrCat(folder.empty() ? "." : folder, "/", name);
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return absl::NotFoundError(
      absl::StrCat("--python=", name, ": there is no such program in PATH; give its path"));
}

absl::StatusOr<WorkerProgram> ProgramOf(const ParsedCommand& command) {
  const auto refuse = [](const std::string& flag, const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--program with --", flag, ": ", why));
  };
  if (command.Given("job"))
    return refuse("job", "the program makes the job itself; give it the file in the program");
  if (command.Switch("dry_run"))
    return refuse("dry_run", "only the program knows its job; this is not supported yet");
  if (ChoosesPservers(command) || command.Number("server_num") == 0)
    return refuse("server_num", "give the number of pservers, at least 1");
  if (command.Given("gpus")) return refuse("gpus", "programs have not run on GPUs yet");
  WorkerProgram program;
  SLUICE_ASSIGN_OR_RETURN(program.interpreter, FindExecutable(command.Text("python")));
  program.file = command.Text("program");
  program.args = command.words;
  program.debugs = command.Switch("pdb");
  if (!Env::Real()->Exists(program.file))
    return absl::InvalidArgumentError(absl::StrCat("--program=", program.file, " does not exist"));
  return program;
}

// Waits until the program's first worker has written its job. The user's own code runs until then,
// so there is no limit of time. INTERNAL: a process has ended. CANCELLED: the user has interrupted.
absl::Status AwaitJob(const std::string& file, LocalCluster* cluster,
                      const Interruption& interruption) {
  while (!Env::Real()->Exists(file)) {
    if (interruption.came()) return absl::CancelledError("interrupted");
    absl::Status ended = cluster->CheckProcesses();
    // An error in a script ends all its processes, which are told in their order. That of rank 0 is
    // on the terminal already, and so is not shown again.
    const absl::Time deadline = Clock::Real()->Now() + kFirstEndsToo;
    while (!ended.ok() && Clock::Real()->Now() < deadline) {
      Clock::Real()->Sleep(kLookForJob);
      ended = cluster->CheckProcesses();
    }
    SLUICE_RETURN_IF_ERROR(ended);
    Clock::Real()->Sleep(kLookForJob);
  }
  return absl::OkStatus();
}

// Says which number of workers counts when the program's job names another one than was launched;
// "" otherwise. `given`: the user has said the number.
std::string NoteOnWorkers(const JobConfig& declared, uint32_t launched, bool given) {
  if (!declared.has_worker_num() || declared.worker_num() == launched) return "";
  return absl::StrCat("the program's job has worker_num: ", declared.worker_num(), ", but ",
                      given ? "--worker_num" : "the default of --worker_num",
                      " counts: ", Counted(launched, "worker"));
}

// Submits the job that the program has declared, and follows it.
int RunProgramsJob(const ParsedCommand& command, const WorkerProgram& program, uint32_t worker_num,
                   const LimitsConfig& limits, const std::string& logs, LocalCluster* cluster,
                   const Viewers& viewers, Interruption* interruption) {
  const std::string file = program.job_file();
  const auto load = [&]() -> absl::StatusOr<SubmitJobRequest> {
    SLUICE_RETURN_IF_ERROR(AwaitJob(file, cluster, *interruption));
    SLUICE_ASSIGN_OR_RETURN(const JobConfig declared, ReadJobConfig(file));
    const bool given = !command.TextOrVariable("worker_num").empty();
    PrintNote(NoteOnWorkers(declared, worker_num, given));
    SLUICE_ASSIGN_OR_RETURN(
        const JobConfig job,
        JobOfProgram(file, command, {{"worker_num", absl::StrCat(worker_num), "--worker_num"}}));
    SLUICE_ASSIGN_OR_RETURN(SubmitJobRequest request, SubmissionFromFlags(command, job));
    DataCheckReport data;
    SLUICE_RETURN_IF_ERROR(CheckFiles(request, file, &data));
    for (const std::string& warning : data.warnings)
      PrintOnStderr(absl::StrCat("warning: ", warning));
    return request;
  };
  const auto request = load();
  if (!request.ok()) {
    // The processes would wait for a job that does not come.
    (void)SchedulerClient::Create(cluster->scheduler(), Clock::Real(), cluster->credentials())
        ->Shutdown();
    return absl::IsCancelled(request.status()) ? kJobFailed : ReportError(request.status());
  }
  PrintLaunch(command, request->config(), static_cast<int>(command.Number("server_num")), logs);
  std::cout << std::flush;
  const int code = RunJob(command, *request, limits, cluster, viewers, interruption);
  if (code != kDone) return code;
  const std::vector<std::string> failures =
      cluster->AwaitPrograms([interruption] { return interruption->came(); }, PrintNote);
  for (const std::string& failure : failures) PrintNote(failure);
  return failures.empty() ? kDone : kJobFailed;
}

int LaunchProgram(const ParsedCommand& command) {
  auto program = ProgramOf(command);
  if (!program.ok()) return ReportError(program.status());
  const Screen screen = StandardScreen();
  // A line that is rewritten in place would get into the debugger's way.
  const auto mode = ParseProgressMode(command.Text("progress"), screen.live && !program->debugs);
  if (!mode.ok()) return ReportError(mode.status());
  uint32_t worker_num = 1;
  const std::string wanted = command.TextOrVariable("worker_num");
  if (!wanted.empty() && (!absl::SimpleAtoi(wanted, &worker_num) || worker_num == 0)) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("--worker_num=", wanted, " is not a number of workers; give 1 or more")));
  }
  if (program->debugs && worker_num > 1) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("--pdb with --worker_num=", worker_num,
                     ": the terminal can serve the debugger of one process; give --worker_num=1")));
  }
  JobConfig known;  // all that the cluster needs of the job
  known.set_worker_num(worker_num);
  auto options = ClusterOptions(command, known);
  if (!options.ok()) return ReportError(options.status());
  StopSignal::Install(false);
  const auto stream = StreamOf(command);
  if (!stream.ok()) return ReportError(stream.status());
  auto logs = LogsOf(command);
  if (!logs.ok()) return ReportError(logs.status());
  const std::string log_dir = logs->path();
  program->folder = log_dir + "/program";
  options->program = *program;
  options->logs = *std::move(logs);
  const LimitsConfig limits = options->config.limits();
  auto cluster = LocalCluster::Start(*std::move(options));
  if (!cluster.ok() && !absl::IsCancelled(cluster.status())) return ReportError(cluster.status());
  if (!cluster.ok()) return StopSignal::Wait();
  ProgressPrinter printer(*mode, &std::cout, screen.escapes);
  return RunAndStop(cluster->get(), *mode, [&](Interruption* interruption) {
    return RunProgramsJob(command, *program, worker_num, limits, log_dir, cluster->get(),
                          {&printer, stream->get()}, interruption);
  });
}

int LaunchAny(const ParsedCommand& command) {
  if (command.Given("program")) return LaunchProgram(command);
  if (!command.words.empty()) {
    const std::string& word = command.words[0];
    const std::string advice =
        absl::EndsWith(word, ".py")    ? absl::StrCat("a program is given as --program=", word)
        : absl::StrContains(word, '=') ? "flags begin with --"
                                       : absl::StrCat("a job is given as --job=", word);
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("sluice launch does not take '", word, "'; ", advice,
                     " (only a program takes arguments, after --; sluice launch --help)")));
  }
  if (command.Switch("pdb")) {
    return ReportError(absl::InvalidArgumentError(
        "--pdb without --program: there is no Python program to debug; remove --pdb"));
  }
  return Launch(command);
}

}  // namespace

Command LaunchCommand() {
  CommandSpec spec;
  spec.name = "launch";
  spec.summary = "Starts a local cluster, runs one job on it and stops it.";
  spec.flags = JobFlags();
  for (FlagSpec& flag : ClusterFlags()) {
    if (flag.name == "server_num") {
      flag.or_word = kAuto;
      flag.value_name = "N|auto";
      flag.help =
          "number of pservers; 0: the workers keep all tables (sync, without sparse tables); auto: "
          "measures the job first (sluice plan)";
    }
    spec.flags.push_back(std::move(flag));
  }
  spec.flags.push_back(
      {"program", FlagKind::kText, "FILE.py", "",
       "instead of --job: each worker is this Python program, which makes the job "
       "(sluice.torch); what follows -- are its arguments. Rank 0 prints on the "
       "terminal, the others into their logs; there is nothing to read from standard "
       "input (input() raises EOFError) without --pdb"});
  spec.flags.push_back({"python", FlagKind::kText, "PROGRAM", "python3",
                        "the interpreter of --program, by its path or as found in PATH"});
  spec.flags.push_back({"progress_fd", FlagKind::kNumber, "N", "",
                        "the writing end of a pipe that gets the status of the job as lines of "
                        "JSON; when its reader goes away, the job is stopped as by SIGTERM"});
  spec.flags.push_back({"pdb", FlagKind::kBool, "", "",
                        "with --program and one worker: the program has the terminal's input, so "
                        "that breakpoint() works, and Python's debugger opens where an exception "
                        "was raised, while the job waits"});
  spec.words = "[-- ARGUMENT...]";
  spec.max_words = 1000;
  spec.examples =
      "  sluice launch --job=configs/adult_wide_deep.textproto --worker_num=2\n"
      "  sluice launch --job=J --a_sync=false                  # sync\n"
      "  sluice launch --job=J --a_sync=true --k_steps=100     # Geo: every 100 steps\n"
      "  sluice launch --job=J --gpus=0,1 --cpu_workers=2      # two of four on GPUs\n"
      "  sluice launch --job=J --device=auto --worker_num=1    # a GPU if there is one\n"
      "  sluice launch --job=J --output_dir=D --resume         # from its checkpoint\n"
      "  sluice launch --job=J --server_num=auto --worker_num=4\n"
      "  sluice launch --job=J --a_sync=false --server_num=0   # without pservers\n"
      "  sluice launch --job=J --tls                           # mutual TLS\n"
      "  sluice launch --program=train.py --worker_num=2 -- --epochs 3\n"
      "  sluice launch --program=train.py --pdb                # debug one worker\n"
      "  sluice launch --job=J --set optimizers.all.learning_rate=0.01 --dry_run\n";
  return {spec, &LaunchAny};
}

}  // namespace sluice::cli
