// sluice plan: how many pservers and workers a job needs.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <iostream>
#include <set>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/cluster/local_cluster.h"
#include "cli/cluster/worker_devices.h"
#include "cli/commands/commands.h"
#include "cli/jobs/job_files.h"
#include "cli/jobs/job_submission.h"
#include "cli/jobs/output_files.h"
#include "cli/jobs/watch_job.h"
#include "cli/plan/cost_measurement.h"
#include "cli/plan/dense_exchange.h"
#include "cli/plan/line_plot.h"
#include "cli/plan/measured_job.h"
#include "cli/plan/plan_search.h"
#include "cli/plan/plan_text.h"
#include "cli/plan/scaling_simulator.h"
#include "cli/screen/command_line.h"
#include "cli/screen/stderr_lines.h"
#include "common/base/clock.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/daemon/stop_signal.h"
#include "model/built_in_models.h"
#include "model/without_pservers.h"

namespace sluice::cli {
namespace {

constexpr uint32_t kMostProcesses = 100'000;
constexpr uint32_t kPort = 7100;

// Flags of a job that change nothing about a measurement.
const std::set<std::string>& FlagsWithoutEffect() {
  static const auto* const names =
      new std::set<std::string>{"output_dir", "trace",   "worker_num",  "epochs",  "log_every",
                                "resume",     "dry_run", "allow_older", "progress"};
  return *names;
}

// The question that the flags ask, how to measure its costs, and where the answer goes.
struct Request {
  JobConfig job;
  plan::PlanQuestion question;
  plan::MeasurementOptions measurement;
  bool between_hosts = false;  // workers and pservers are on different hosts
  bool simulate = false;
  std::vector<std::pair<std::string, std::string>> outputs;  // flag, path
};

absl::Status AddNetwork(const ParsedCommand& command, Request* request) {
  plan::PlanQuestion& question = request->question;
  SLUICE_ASSIGN_OR_RETURN(question.hosts, plan::ParseHosts("hosts", command.Text("hosts")));
  if (command.Given("bandwidth")) {
    SLUICE_ASSIGN_OR_RETURN(const double bits,
                            plan::ParseBits("bandwidth", command.Text("bandwidth")));
    question.network.bytes_per_s = plan::PayloadRate(bits);
  }
  const bool between_hosts = command.Given("bandwidth") || question.hosts.size() > 1;
  request->between_hosts = between_hosts && question.hosts.size() != 1;
  if (command.Given("latency_us") && !between_hosts) {
    return absl::InvalidArgumentError(
        "--latency_us is between hosts, and there is one; also give --bandwidth, or --hosts");
  }
  if (command.Number("latency_us") < 0)
    return absl::InvalidArgumentError("--latency_us must not be negative; give microseconds");
  if (between_hosts) question.network.latency_s = 1e-6 * command.Number("latency_us");
  question.cores = std::max(1u, std::thread::hardware_concurrency());
  // Without any host in the question, it is about this one.
  if (!between_hosts && question.hosts.empty()) {
    question.hosts.resize(1);
    question.hosts[0].set_name("127.0.0.1");
    question.hosts[0].set_cores(static_cast<uint32_t>(question.cores));
  }
  if (!request->simulate) return absl::OkStatus();
  if (!question.hosts.empty() || !command.Given("bandwidth")) {
    return absl::InvalidArgumentError(
        "--simulate gives every process a host of its own; give --bandwidth=BITS, and no --hosts");
  }
  return absl::OkStatus();
}

// Without pservers a job trains as a launch with --server_num=0 would train it.
absl::Status AddNumbers(const ParsedCommand& command, Request* request) {
  plan::PlanQuestion& question = request->question;
  SLUICE_ASSIGN_OR_RETURN(
      question.workers, plan::ParseNumbers("workers", command.Text("workers"), 1, kMostProcesses));
  SLUICE_ASSIGN_OR_RETURN(
      question.pservers,
      plan::ParseNumbers("pservers", command.Text("pservers"), 0, kMostProcesses));
  if (std::count(question.pservers.begin(), question.pservers.end(), 0u) == 0)
    return absl::OkStatus();
  const auto fitted = FitWithoutPservers(BuiltInSpecs(), &request->job);
  if (!fitted.ok()) {
    // A plan has another flag for the number than the commands that start pservers.
    return absl::Status(
        fitted.status().code(),
        absl::StrReplaceAll(fitted.status().message(), {{"--server_num", "--pservers"}}));
  }
  const std::string& changed = *fitted;
  if (!changed.empty()) PrintOnStderr(changed);
  return absl::OkStatus();
}

absl::Status AddOutputs(const ParsedCommand& command, Request* request) {
  for (const char* flag : {"json", "output", "svg"}) {
    if (!command.Given(flag)) continue;
    SLUICE_RETURN_IF_ERROR(
        CheckOutputFile(absl::StrCat("--", flag), command.Text(flag), command.Switch("overwrite"),
                        InputsOf(request->job, command.Text("job"), Env::Real()), Env::Real()));
    request->outputs.emplace_back(flag, command.Text(flag));
  }
  if (command.Given("svg") && !request->simulate)
    return absl::InvalidArgumentError("--svg draws the curves of --simulate; add it");
  if (command.Given("output") && request->simulate) {
    return absl::InvalidArgumentError(
        "--output is the cluster file of a plan; leave it out with --simulate");
  }
  if (command.Given("output") && request->question.hosts.empty()) {
    return absl::InvalidArgumentError(
        "--output needs the names of the hosts; give --hosts=HOST:CORES[,HOST:CORES...]");
  }
  return absl::OkStatus();
}

// The cluster that measures is like the one that is asked about.
absl::Status SetCluster(const ParsedCommand& command, Request* request) {
  plan::ShortCluster& cluster = request->measurement.cluster;
  cluster.clock = Clock::Real();
  SLUICE_ASSIGN_OR_RETURN(const WorkerDevices devices, DevicesOfWorkers(command, 1));
  cluster.device = devices.by_rank.front();
  SLUICE_ASSIGN_OR_RETURN(cluster.server_threads, ServerThreads(command));
  SLUICE_ASSIGN_OR_RETURN(cluster.transport, DefaultTransport());
  // Shared memory would not carry the data between hosts, and costs less CPU time than gRPC does.
  if (request->between_hosts) cluster.transport = "grpc";
  cluster.tls = command.Given("tls_ca");
  cluster.note = [](const std::string& line) { PrintOnStderr(line); };
  return absl::OkStatus();
}

absl::StatusOr<Request> RequestOf(const ParsedCommand& command) {
  Request request;
  SLUICE_ASSIGN_OR_RETURN(request.job, JobFromFlags(command));
  request.simulate = command.Switch("simulate");
  SLUICE_RETURN_IF_ERROR(AddNetwork(command, &request));
  SLUICE_RETURN_IF_ERROR(AddNumbers(command, &request));
  request.question.mode = plan::PlanModeOf(request.job);
  SLUICE_RETURN_IF_ERROR(AddOutputs(command, &request));
  const long seconds = command.Number("measure_s");
  if (seconds < 1 || seconds > 3600) {
    return absl::InvalidArgumentError(
        absl::StrCat("--measure_s=", seconds, " is out of range; give 1 to 3600 seconds"));
  }
  request.measurement.seconds = static_cast<double>(seconds);
  SLUICE_RETURN_IF_ERROR(SetCluster(command, &request));
  return request;
}

absl::StatusOr<PlanCosts> CostsFor(const ParsedCommand& command, const Request& request) {
  if (command.Given("costs")) {
    SLUICE_ASSIGN_OR_RETURN(PlanCosts costs, plan::ReadCosts(command.Text("costs"), Env::Real()));
    // The file may be of a job with other sync_configs. The exchange between workers follows from
    // this job without a measurement.
    SLUICE_RETURN_IF_ERROR(plan::SetDenseExchange(request.job, &costs));
    const plan::ShortCluster& cluster = request.measurement.cluster;
    const std::string warning = plan::WarningOfTransport(costs, cluster.transport, cluster.tls);
    if (!warning.empty())
      cluster.note(absl::StrCat("warning: --costs=", command.Text("costs"), ": ", warning));
    return costs;
  }
  // Wrong columns or devices are found here rather than in the log of a worker.
  SLUICE_RETURN_IF_ERROR(CheckWhatIsHere(request.job, Env::Real()));
  WorkerDevices devices{"--device", {request.measurement.cluster.device}};
  SLUICE_RETURN_IF_ERROR(CheckDevices(devices));
  return plan::MeasureCosts(request.job, request.measurement);
}

absl::Status WriteOutput(const std::string& path, const std::string& text) {
  std::ofstream out(path);
  out << text;
  out.close();
  if (out) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("cannot write ", path));
}

absl::StatusOr<std::string> ClusterText(const ParsedCommand& command, const Plan& answer) {
  SLUICE_ASSIGN_OR_RETURN(ClusterConfig cluster, plan::ClusterOf(answer, kPort));
  if (command.Given("tls_ca")) cluster.mutable_security()->set_tls_ca(command.Text("tls_ca"));
  if (command.Switch("insecure")) cluster.mutable_security()->set_insecure(true);
  // A file that the daemons would refuse must not be written.
  SLUICE_RETURN_IF_ERROR(ValidateClusterConfig(WithDefaults(cluster)));
  return absl::StrCat(
      "# Made by sluice plan for the job ", answer.costs().job(),
      ". Start on each host, with this file as --cluster:\n"
      "# sluice-scheduler on the scheduler's host, ",
      cluster.pservers().empty() ? "" : "sluice-pserver --rank=R for each pserver, ",
      "and\n# sluice-worker --rank=R for each entry of worker_hosts, counted from 0.\n",
      ToTextproto(cluster));
}

absl::Status Answer(const ParsedCommand& command, const Request& request, const PlanCosts& costs) {
  const Plan answer = plan::AnswerPlan(costs, request.question);
  std::cout << plan::PlanText(answer, request.question.mode) << std::flush;
  for (const auto& [flag, path] : request.outputs) {
    std::string text;
    if (flag == "json") {
      SLUICE_ASSIGN_OR_RETURN(text, plan::PlanJson(answer));
    } else {
      SLUICE_ASSIGN_OR_RETURN(text, ClusterText(command, answer));
    }
    SLUICE_RETURN_IF_ERROR(WriteOutput(path, text));
    std::cout << (flag == "json" ? "the plan as JSON: " : "the cluster of the best row: ") << path
              << std::endl;
  }
  return absl::OkStatus();
}

absl::Status SimulateScaling(const Request& request, const PlanCosts& costs) {
  plan::Simulation simulation;
  simulation.network = request.question.network;
  simulation.cores = costs.cores() > 0 ? costs.cores() : request.question.cores;
  std::vector<uint32_t> workers = request.question.workers, pservers = request.question.pservers;
  // About equal distances on the logarithmic axes of the plot.
  if (workers.empty()) workers = {1, 3, 10, 30, 100, 300, 1000, 3000, 10000};
  if (pservers.empty()) pservers = {1, 10, 100, 1000};
  const bool collective = request.question.mode == plan::PlanMode::kCollective;
  const plan::PlanMode mode = collective ? plan::PlanMode::kCollective : plan::PlanMode::kSync;
  Scaling scaling;
  *scaling.mutable_costs() = costs;
  scaling.set_bits_per_second(plan::LinkBits(simulation.network.bytes_per_s));
  scaling.set_latency_s(simulation.network.latency_s);
  for (const uint32_t p : pservers) {
    for (const uint32_t w : workers)
      *scaling.add_points() = plan::SimulateAll(costs, w, p, simulation);
  }
  std::cout << plan::ScalingText(scaling);
  const uint32_t most = *std::max_element(workers.begin(), workers.end());
  for (const uint32_t p : pservers) {
    const uint32_t at = plan::WorkersAtHalfOfIdeal(costs, mode, p, most, simulation);
    std::cout << p << (p == 1 ? " pserver: " : " pservers: ")
              << (collective ? "collective " : "sync ")
              << (at > 0 ? absl::StrCat("falls below half of ideal with ", at)
                         : absl::StrCat("keeps half of ideal up to ", most))
              << (at == 1 ? " worker\n" : " workers\n");
  }
  std::cout << std::flush;
  for (const auto& [flag, path] : request.outputs) {
    std::string text;
    if (flag == "json") {
      SLUICE_ASSIGN_OR_RETURN(text, plan::PlanJson(scaling));
    } else {
      text = plan::SvgOf(plan::ScalingPlot(scaling));
    }
    SLUICE_RETURN_IF_ERROR(WriteOutput(path, text));
  }
  return absl::OkStatus();
}

int PlanJob(const ParsedCommand& command) {
  const auto request = RequestOf(command);
  if (!request.ok()) return ReportError(request.status());
  // This comes before any thread starts, because threads inherit the blocked signals.
  StopSignal::Install(false);
  const auto costs = CostsFor(command, *request);
  if (absl::IsCancelled(costs.status())) return StopSignal::Wait();
  if (!costs.ok()) return ReportError(costs.status());
  std::cout << plan::CostsText(*costs) << std::flush;
  const absl::Status done =
      request->simulate ? SimulateScaling(*request, *costs) : Answer(command, *request, *costs);
  return done.ok() ? kDone : ReportError(done);
}

}  // namespace

Command PlanCommand() {
  CommandSpec spec;
  spec.name = "plan";
  spec.only_prints = true;
  spec.summary = "Measures a job's step and says how many pservers and workers it needs.";
  for (FlagSpec& flag : JobFlags()) {
    if (FlagsWithoutEffect().count(flag.name) > 0) continue;
    if (flag.name == "overwrite") flag.help = "replace the files of --json, --output and --svg";
    spec.flags.push_back(std::move(flag));
  }
  for (FlagSpec& flag : DeviceFlags()) {
    if (flag.name == "device") spec.flags.push_back(std::move(flag));
  }
  const FlagSpec more[] = {
      {"hosts", FlagKind::kText, "HOST:CORES,...", "",
       "the hosts and their cores; default: this host, or with --bandwidth one for each process"},
      {"bandwidth", FlagKind::kText, "BITS", "",
       "bits per second of each host's link in each direction, e.g. 10G; default: no limit"},
      {"latency_us", FlagKind::kNumber, "N", "100", "microseconds of a round trip between hosts"},
      {"workers", FlagKind::kText, "N,...", "", "numbers of workers to choose from"},
      {"pservers", FlagKind::kText, "N,...", "",
       "numbers of pservers to choose from; 0: a sync job without sparse tables needs none"},
      {"server_threads", FlagKind::kNumber, "N", "2", "threads of a pserver"},
      {"measure_s", FlagKind::kNumber, "N", "12", "seconds of training to measure"},
      {"costs", FlagKind::kText, "FILE", "",
       "take the costs from the --json of an earlier plan instead of measuring"},
      {"output", FlagKind::kText, "FILE", "", "write the cluster file of the best row"},
      {"insecure", FlagKind::kBool, "", "",
       "the cluster file allows addresses that are not loopback, without TLS"},
      {"tls_ca", FlagKind::kText, "FILE", "", "the CA in the cluster file, for mutual TLS"},
      {"json", FlagKind::kText, "FILE", "", "write costs and predictions as JSON"},
      {"simulate", FlagKind::kBool, "", "",
       "simulate up to 10,000 workers and 1,000 pservers, each on a host of its own"},
      {"svg", FlagKind::kText, "FILE", "", "with --simulate: draw the curves"},
  };
  spec.flags.insert(spec.flags.end(), std::begin(more), std::end(more));
  spec.examples =
      "  sluice plan --job=configs/adult_wide_deep.textproto           # on this host\n"
      "  sluice plan --job=J --bandwidth=10G                           # a host for each process\n"
      "  sluice plan --job=J --hosts=a:16,b:16 --bandwidth=25G --insecure "
      "--output=cluster.textproto\n"
      "  sluice plan --job=J --json=plan.json; sluice plan --job=J --costs=plan.json "
      "--bandwidth=1G\n"
      "  sluice plan --job=J --bandwidth=10G --simulate --svg=scaling.svg\n";
  return {spec, &PlanJob};
}

}  // namespace sluice::cli
