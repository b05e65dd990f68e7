// sluice launch: runs one job on a local cluster.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <iostream>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/child_process.h"
#include "cli/cluster/local_cluster.h"
#include "cli/commands/commands.h"
#include "cli/commands/launch_hosts.h"
#include "cli/jobs/dashboard_address.h"
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
#include "common/places/places_env.h"
#include "model/built_in_models.h"
#include "model/model_spec.h"
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
           const LimitsConfig& limits, Cluster* cluster, const Viewers& viewers,
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
  JobStatus newest;  // that the scheduler has told
  if (submitted.ok()) {
    printer->Note(DescribeOutput(request.config(), submitted->job_id()));
    WatchOptions watch;
    watch.clock = Clock::Real();
    watch.client = client.get();
    watch.job_id = submitted->job_id();
    watch.printer = printer;
    watch.on_status = [interruption, viewers, &newest](const JobStatus& status) {
      newest = status;
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
    if (!status.ok() && NamesHosts(command) && cluster->SchedulerIsLost()) {
      newest.set_state(JOB_CANCELLED);  // nobody continues it
      PrintNote(ResumeHint("launch", command, request.config(), newest));
      code = kJobFailed;
    }
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
  std::vector<ConfigOverride> overrides;
  if (NamesHosts(command)) {
    SLUICE_ASSIGN_OR_RETURN(const HostsPlan plan, HostsPlanOf(command));
    overrides.push_back({"worker_num", absl::StrCat(plan.worker_num()), "--hosts"});
  }
  SLUICE_ASSIGN_OR_RETURN(const uint32_t workers, WorkersOfGpus(command));
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
  if (job.worker_num() > 1000 && !NamesHosts(command)) {
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

// The scheduler would refuse such tables, too, but only when the cluster runs.
absl::Status CheckTables(const ParsedCommand& command, const JobConfig& job, size_t pservers) {
  if (NamesHosts(command)) {
    SLUICE_ASSIGN_OR_RETURN(const HostsPlan plan, HostsPlanOf(command));
    pservers = plan.placement.pservers.size();
  }
  SLUICE_ASSIGN_OR_RETURN(const auto model, ModelSpec::Create(job, BuiltInSpecs()));
  return CheckShards(job, model->tables(), static_cast<uint32_t>(pservers));
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
  for (const std::string& warning : WarningsOf(request, AllPlaces()))
    PrintOnStderr(absl::StrCat("warning: ", warning));
  std::cout << ToTextproto(job);
  return kDone;
}

// Prints the job, its cluster and the folder of the logs.
void PrintLaunch(const ParsedCommand& command, const JobConfig& job, size_t pservers,
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
  Env* const env = AllPlaces();
  SLUICE_RETURN_IF_ERROR(CheckJobFiles(JobToCheck(request), "output", env, data, &PrintOnStderr));
  SLUICE_RETURN_IF_ERROR(CheckJobOutputs(request.config(), job_file, env));
  SLUICE_RETURN_IF_ERROR(CheckKeepsUnfinished(request, env));
  return CheckCanResume(request, env);
}

// Calls `run`, and then stops the cluster. Returns the exit code of `run`, or that of a signal that
// came first.
int RunAndStop(Cluster* cluster, ProgressMode mode,
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
  const auto check_tables = [&] {
    return CheckTables(command, *job, static_cast<size_t>(options->config.pservers_size()));
  };
  const absl::Status tables = check_tables();
  if (!tables.ok()) return ReportError(tables);
  DataCheckReport data;
  const absl::Status files = CheckFiles(*request, command.Text("job"), &data);
  if (!files.ok()) return ReportError(files);
  for (const std::string& warning : data.warnings)
    PrintOnStderr(absl::StrCat("warning: ", warning));
  for (const std::string& note : NotesOf(*request, AllPlaces()))
    PrintOnStderr(absl::StrCat("note: ", note));
  if (command.Switch("dry_run")) return DryRun(*job, *request, options->devices, data);
  // This comes before any thread starts, because threads inherit the blocked signals.
  StopSignal::Install(false);
  const auto stream = StreamOf(command);
  if (!stream.ok()) return ReportError(stream.status());
  std::optional<HostsPlan> hosts;
  if (NamesHosts(command)) {
    auto plan = HostsPlanOf(command);
    if (!plan.ok()) return ReportError(plan.status());
    hosts = *std::move(plan);
  }
  std::string gpus;
  absl::Status there;
  // Each worker on another host looks for its device itself.
  if (!hosts.has_value()) there = CheckDevices(options->devices, &ListCudaDevices, &gpus);
  if (there.ok() && !hosts.has_value()) there = CheckWeightsOnDevices(*job, options->devices);
  if (!there.ok()) return ReportError(there);
  if (ChoosesPservers(command)) {
    const absl::Status chosen = ChoosePservers(*job, &*options);
    if (absl::IsCancelled(chosen)) return StopSignal::Wait();
    if (!chosen.ok()) return ReportError(chosen);
    const absl::Status fit = check_tables();
    if (!fit.ok()) return ReportError(fit);
  }
  // This comes after all checks, so that a launch that starts nothing takes no folder.
  auto logs = LogsOf(command);
  if (!logs.ok()) return ReportError(logs.status());
  const std::string log_dir = logs->path();
  const LimitsConfig limits = options->config.limits();
  ProgressPrinter printer(*mode, &std::cout, screen.escapes);
  absl::StatusOr<std::unique_ptr<Cluster>> cluster;
  if (hosts.has_value()) {
    cluster = StartOnHosts(command, *hosts, *job, /*program=*/nullptr, limits, *std::move(logs),
                           [&printer](const std::string& line) { printer.Note(line); });
    if (cluster.ok()) {
      PrintLaunch(command, *job, hosts->placement.pservers.size(), log_dir);
      std::cout << DescribeHosts(*hosts) << "\n";
    }
  } else {
    PrintLaunch(command, *job, static_cast<size_t>(options->config.pservers_size()), log_dir);
    std::cout << gpus << std::flush;
    options->logs = *std::move(logs);
    cluster = LocalCluster::Start(*std::move(options));
  }
  if (!cluster.ok() && !absl::IsCancelled(cluster.status())) return ReportError(cluster.status());
  if (!cluster.ok()) return StopSignal::Wait();
  // The admin port of another host is on its loopback.
  if (!hosts.has_value())
    std::cout << DashboardLineOf(log_dir, (*cluster)->credentials().tls()) << "\n";
  std::cout << std::flush;
  return RunAndStop(cluster->get(), *mode, [&](Interruption* interruption) {
    return RunJob(command, *request, limits, cluster->get(), {&printer, stream->get()},
                  interruption);
  });
}

// ---------------------------------------------------------------------------------------- programs

constexpr absl::Duration kLookForJob = absl::Milliseconds(50);
// How long the first program has to end by itself after another one has ended.
constexpr absl::Duration kFirstEndsToo = absl::Seconds(2);
// How long after an error of one worker the errors that it makes in others come.
constexpr std::chrono::seconds kErrorsTogether(60);

absl::StatusOr<std::string> InterpreterOf(const ParsedCommand& command) {
  const std::string name = command.Text("python");
  if (NamesHosts(command)) {
    // Each host finds a name in its own PATH. A path is the same on all, where guards do not begin
    // in the current folder.
    if (!absl::StrContains(name, '/')) return name;
    std::error_code error;
    return std::filesystem::absolute(name, error).string();
  }
  const auto found = FindExecutable(name);
  if (found.ok()) return found;
  return absl::NotFoundError(absl::StrCat("--python=", name, ": ", found.status().message()));
}

absl::StatusOr<WorkerProgram> ProgramOf(const ParsedCommand& command) {
  const auto refuse = [](const std::string& flag, const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat("--program with --", flag, ": ", why));
  };
  for (const char* ending : {".textproto", ".pbtxt", ".prototxt", ".txtpb"}) {
    const std::string file = command.Text("program");
    if (!absl::EndsWith(file, ending)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--program=", file,
                     " is a job file and no Python program; did you mean --job=", file, "?"));
  }
  if (command.Given("job"))
    return refuse("job", "the program makes the job itself; give it the file in the program");
  if (command.Switch("dry_run"))
    return refuse("dry_run", "only the program knows its job; this is not supported yet");
  if (ChoosesPservers(command) ||
      (command.Given("server_num") && command.Number("server_num") == 0))
    return refuse("server_num", "give the number of pservers, at least 1");
  if (command.Given("gpus")) return refuse("gpus", "programs have not run on GPUs yet");
  WorkerProgram program;
  SLUICE_ASSIGN_OR_RETURN(program.interpreter, InterpreterOf(command));
  program.file = command.Text("program");
  program.args = command.words;
  program.debugs = command.Switch("pdb");
  if (!Env::Real()->Exists(program.file))
    return absl::InvalidArgumentError(absl::StrCat("--program=", program.file, " does not exist"));
  if (!NamesHosts(command)) return program;
  if (program.debugs) return refuse("pdb", "a program on other hosts has no terminal");
  std::error_code error;
  program.file = std::filesystem::absolute(program.file, error).string();
  return program;
}

// Waits until the program's first worker has written its job. The user's own code runs until then,
// so there is no limit of time. INTERNAL: a process has ended. CANCELLED: the user has interrupted.
absl::Status AwaitJob(const std::string& file, Cluster* cluster, const Interruption& interruption) {
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
    // A script that does something else, or whose `with` is never reached, ends like a good one.
    if (absl::EndsWith(ended.message(), "exited with code 0")) {
      return absl::Status(ended.code(),
                          absl::StrCat(ended.message(),
                                       " without a job: it never came to `with "
                                       "sluice.torch.worker(...)` or `with sluice.Client(...)`"));
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
// `hosts`: the cluster when it is on several hosts; else null.
int RunProgramsJob(const ParsedCommand& command, const WorkerProgram& program,
                   const ClusterConfig& config, const std::string& logs, Cluster* cluster,
                   HostCluster* hosts, const Viewers& viewers, Interruption* interruption) {
  const uint32_t worker_num = config.worker_num();
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
    if (hosts != nullptr)
      SLUICE_RETURN_IF_ERROR(hosts->CheckPaths(PathsOfJob(request.config(), "output")));
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
  PrintLaunch(command, request->config(), static_cast<size_t>(config.pservers_size()), logs);
  std::cout << std::flush;
  const int code = RunJob(command, *request, config.limits(), cluster, viewers, interruption);
  if (code != kDone) return code;
  const std::vector<std::string> failures =
      cluster->AwaitPrograms([interruption] { return interruption->came(); }, PrintNote);
  for (const std::string& failure : failures) PrintNote(failure);
  return failures.empty() ? kDone : kJobFailed;
}

// Prints the error of a program (python/sluice/_process.py) as the last line of the launch. An
// error of one worker can make others fail, so it is the first of those that came with the newest:
// a rank that was given up may have left its error hours before. Returns the exit code of the
// launch.
int ReportProgramsError(const WorkerProgram& program, uint32_t worker_num, int code) {
  if (code != kJobFailed) return code;
  std::map<std::filesystem::file_time_type, std::string> files;
  for (uint32_t rank = 0; rank < worker_num; ++rank) {
    const std::string file = absl::StrCat(program.folder, "/error.", rank);
    std::error_code lacking;
    const auto time = std::filesystem::last_write_time(file, lacking);
    if (!lacking) files.emplace(time, file);
  }
  if (files.empty()) return code;
  const auto came_together = files.lower_bound(files.rbegin()->first - kErrorsTogether);
  const std::string first = Env::Real()->ReadFile(came_together->second).value_or("");
  if (first.size() < 3) return code;
  PrintNote(PrintableLine(first.substr(2)));
  const bool begun = Env::Real()->Exists(program.job_file());
  return !begun && absl::StartsWith(first, absl::StrCat(kBadUsage, " ")) ? kBadUsage : code;
}

// The number of workers of a program.
absl::StatusOr<uint32_t> WorkersOfProgram(const ParsedCommand& command,
                                          const std::optional<HostsPlan>& hosts) {
  if (hosts.has_value()) return hosts->worker_num();
  uint32_t worker_num = 1;
  const std::string wanted = command.TextOrVariable("worker_num");
  if (wanted.empty() || (absl::SimpleAtoi(wanted, &worker_num) && worker_num > 0))
    return worker_num;
  return absl::InvalidArgumentError(
      absl::StrCat("--worker_num=", wanted, " is not a number of workers; give 1 or more"));
}

int LaunchProgram(const ParsedCommand& command) {
  std::optional<HostsPlan> hosts;
  if (NamesHosts(command)) {
    auto plan = HostsPlanOf(command);
    if (!plan.ok()) return ReportError(plan.status());
    hosts = *std::move(plan);
  }
  auto program = ProgramOf(command);
  if (!program.ok()) return ReportError(program.status());
  const Screen screen = StandardScreen();
  // A line that is rewritten in place would get into the debugger's way.
  const auto mode = ParseProgressMode(command.Text("progress"), screen.live && !program->debugs);
  if (!mode.ok()) return ReportError(mode.status());
  const auto worker_num = WorkersOfProgram(command, hosts);
  if (!worker_num.ok()) return ReportError(worker_num.status());
  if (program->debugs && *worker_num > 1) {
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("--pdb with --worker_num=", *worker_num,
                     ": the terminal can serve the debugger of one process; give --worker_num=1")));
  }
  JobConfig known;  // all that the cluster needs of the job
  known.set_worker_num(*worker_num);
  known.set_output_dir(command.TextOrVariable("output_dir"));
  auto options = ClusterOptions(command, known);
  if (!options.ok()) return ReportError(options.status());
  StopSignal::Install(false);
  const auto stream = StreamOf(command);
  if (!stream.ok()) return ReportError(stream.status());
  auto logs = LogsOf(command);
  if (!logs.ok()) return ReportError(logs.status());
  const std::string log_dir = logs->path();
  std::error_code error;
  program->folder = std::filesystem::absolute(log_dir, error).string() + "/program";
  ClusterConfig config = options->config;
  ProgressPrinter printer(*mode, &std::cout, screen.escapes);
  std::unique_ptr<Cluster> cluster;
  HostCluster* on_hosts = nullptr;
  absl::Status started;
  if (hosts.has_value()) {
    auto made = StartOnHosts(command, *hosts, known, &*program, config.limits(), *std::move(logs),
                             [&printer](const std::string& line) { printer.Note(line); });
    started = made.status();
    if (made.ok()) {
      on_hosts = made->get();
      cluster = *std::move(made);
      std::cout << DescribeHosts(*hosts) << std::endl;
      const LimitsConfig limits = config.limits();
      config = LoopbackCluster("127.0.0.1:0", static_cast<int>(hosts->placement.pservers.size()),
                               static_cast<int>(*worker_num));
      *config.mutable_limits() = limits;
    }
  } else {
    options->program = *program;
    options->logs = *std::move(logs);
    auto made = LocalCluster::Start(*std::move(options));
    started = made.status();
    if (made.ok()) cluster = *std::move(made);
  }
  if (absl::IsCancelled(started)) return StopSignal::Wait();
  if (!started.ok()) return ReportError(started);
  // The admin port of another host is on its loopback.
  if (!hosts.has_value())
    std::cout << DashboardLineOf(log_dir, cluster->credentials().tls()) << std::endl;
  const int code = RunAndStop(cluster.get(), *mode, [&](Interruption* interruption) {
    return RunProgramsJob(command, *program, config, log_dir, cluster.get(), on_hosts,
                          {&printer, stream->get()}, interruption);
  });
  return ReportProgramsError(*program, *worker_num, code);
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
  for (const char* flag : {"scheduler_host", "ports", "ship", "show_logs"}) {
    if (!command.Given(flag) || NamesHosts(command)) continue;
    return ReportError(absl::InvalidArgumentError(
        absl::StrCat("--", flag, " without --hosts has no effect; remove it, or give --hosts")));
  }
  return Launch(command);
}

}  // namespace

Command LaunchCommand() {
  CommandSpec spec;
  spec.name = "launch";
  spec.summary =
      "Starts a cluster on this host, or over ssh on several, runs one job on it and stops it.";
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
  for (FlagSpec& flag : HostFlags()) spec.flags.push_back(std::move(flag));
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
      "  sluice launch --job=J --hosts=a:4,b:4                 # over ssh, with TLS\n"
      "  sluice launch --program=train.py --worker_num=2 -- --epochs 3\n"
      "  sluice launch --program=train.py --hosts=a:4,b:4 --ship --python=/opt/torch/bin/python\n"
      "  sluice launch --program=train.py --pdb                # debug one worker\n"
      "  sluice launch --job=J --set optimizers.all.learning_rate=0.01 --dry_run\n";
  return {spec, &LaunchAny};
}

}  // namespace sluice::cli
