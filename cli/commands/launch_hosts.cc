#include "cli/commands/launch_hosts.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/child_process.h"
#include "cli/cluster/local_cluster.h"
#include "cli/hosts/own_host.h"
#include "cli/hosts/shipment.h"
#include "cli/screen/format.h"
#include "common/base/env.h"
#include "common/base/status_macros.h"
#include "common/daemon/process_info.h"

namespace sluice::cli {
namespace {

absl::Status Refuse(const std::string& flag, const std::string& why) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, " with --hosts: ", why));
}

absl::StatusOr<std::vector<HostSpec>> HostsOf(const ParsedCommand& command) {
  std::vector<std::string> given;
  for (const char* flag : {"hosts", "H", "ips", "hosts_file"}) {
    if (command.Given(flag)) given.push_back(flag);
  }
  if (given.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--", absl::StrJoin(given, " and --"), " name hosts twice; give one of them"));
  }
  const std::string origin = absl::StrCat(given[0] == "H" ? "-" : "--", given[0]);
  const std::string value = command.Text(given[0]);
  if (given[0] != "hosts_file") return ParseHostList(value, absl::StrCat(origin, "=", value));
  const auto text = Env::Real()->ReadFile(value);
  if (!text.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat(origin, "=", value, " cannot be read: ", text.status().message()));
  }
  return ParseHostFile(*text, absl::StrCat(origin, "=", value));
}

// The index of the host on which the scheduler runs.
absl::StatusOr<size_t> SchedulerHost(const ParsedCommand& command,
                                     const std::vector<HostSpec>& hosts) {
  const std::string wanted = command.Text("scheduler_host");
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (wanted.empty() ? IsOwnHost(hosts[i].name) : hosts[i].name == wanted) return i;
  }
  if (wanted.empty()) return 0;
  return absl::InvalidArgumentError(absl::StrCat(
      "--scheduler_host=", wanted, " is not in the list of hosts; give one of its names"));
}

// An empty folder: the job of an earlier program must not be taken for this one's.
absl::Status MakeProgramFolder(const std::string& folder) {
  std::error_code error;
  std::filesystem::remove_all(folder, error);
  std::filesystem::create_directories(folder, error);
  if (!error) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot make ", folder, ": ", error.message(), "; give another --log_dir"));
}

}  // namespace

std::vector<FlagSpec> HostFlags() {
  return {
      {"hosts", FlagKind::kText, "HOST:N,...", "",
       "runs the job on these hosts over ssh, with N workers each: [USER@]HOST[:N], IPv6 in "
       "brackets; user, port and key come from ~/.ssh/config"},
      {"H", FlagKind::kText, "HOST:N,...", "", "the same as --hosts, as in -H a:4,b:4"},
      {"ips", FlagKind::kText, "HOST,...", "", "the same as --hosts"},
      {"hosts_file", FlagKind::kText, "FILE", "",
       "the same from a file: a line a host, HOST:N or HOST slots=N"},
      {"scheduler_host", FlagKind::kText, "HOST", "",
       "with --hosts: where the scheduler runs; default: this host if it is in the list, else the "
       "first"},
      {"ports", FlagKind::kText, "FROM-TO", "",
       "with --hosts: the ports at which daemons listen, for firewalls; default: any free ones"},
      {"ship", FlagKind::kBool, "", "",
       "with --hosts: send the programs and their libraries, once, to ~/.cache/sluice of each "
       "host, instead of using what is installed there; with --program also the folder of the "
       "script "
       "and the package sluice, but no interpreter"},
      {"show_logs", FlagKind::kBool, "", "",
       "with --hosts: print all lines of the daemons' logs, each behind its host and log; they are "
       "collected in the log folder anyway"}};
}

bool NamesHosts(const ParsedCommand& command) {
  return command.Given("hosts") || command.Given("H") || command.Given("ips") ||
         command.Given("hosts_file");
}

absl::StatusOr<HostsPlan> HostsPlanOf(const ParsedCommand& command) {
  HostsPlan plan;
  SLUICE_ASSIGN_OR_RETURN(plan.hosts, HostsOf(command));
  const uint32_t workers = WorkersOf(plan.hosts);
  const std::string wanted = command.TextOrVariable("worker_num");
  if (uint32_t number = 0;
      !wanted.empty() && (!absl::SimpleAtoi(wanted, &number) || number != workers)) {
    return Refuse(absl::StrCat("worker_num=", wanted),
                  absl::StrCat("the counts of the hosts make ", Counted(workers, "worker"),
                               "; leave --worker_num out, or change the counts"));
  }
  if (command.Given("gpus") || command.Given("cpu_workers"))
    return Refuse("gpus", "a list of GPUs is of one host; give --device=cuda or auto");
  if (command.Text("server_num") == "auto")
    return Refuse("server_num=auto", "it measures on one host; give a number");
  const long servers = command.Given("server_num") ? command.Number("server_num")
                                                   : static_cast<long>(plan.hosts.size());
  if (servers < 0 || servers > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server_num=", servers, " is out of range; give 0 to 1000 pservers"));
  }
  SLUICE_ASSIGN_OR_RETURN(const size_t scheduler, SchedulerHost(command, plan.hosts));
  plan.placement = PlaceDaemons(plan.hosts, static_cast<uint32_t>(servers), scheduler);
  if (command.Given("ports")) {
    // One more for programs of torch.distributed (MASTER_PORT).
    const auto needed = static_cast<uint32_t>((command.Given("program") ? 2 : 1) +
                                              (servers + static_cast<long>(plan.hosts.size()) - 1) /
                                                  static_cast<long>(plan.hosts.size()));
    SLUICE_ASSIGN_OR_RETURN(plan.ports, ParsePorts(command.Text("ports"), needed));
  }
  plan.tls = !command.Given("tls") || command.Switch("tls");
  return plan;
}

std::string DescribeHosts(const HostsPlan& plan) {
  std::vector<std::string> hosts;
  for (size_t i = 0; i < plan.hosts.size(); ++i) {
    hosts.push_back(absl::StrCat(plan.hosts[i].name, " (",
                                 i == plan.placement.scheduler ? "scheduler, " : "",
                                 Counted(plan.hosts[i].workers, "worker"), ")"));
  }
  return absl::StrCat("hosts: ", absl::StrJoin(hosts, ", "),
                      plan.tls ? "; mutual TLS" : "; without TLS");
}

absl::StatusOr<std::unique_ptr<HostCluster>> StartOnHosts(
    const ParsedCommand& command, const HostsPlan& plan, const JobConfig& job,
    const WorkerProgram* program, const LimitsConfig& limits, LogFolder logs,
    const std::function<void(const std::string&)>& note) {
  static SshLinks links;
  HostCluster::Options options;
  options.clock = Clock::Real();
  options.links = &links;
  options.hosts = plan.hosts;
  options.placement = plan.placement;
  options.ports = plan.ports;
  options.limits = limits;
  SLUICE_ASSIGN_OR_RETURN(const std::string programs, ExecutableFolder());
  options.guard_command = GuardCommand(programs);
  if (command.Switch("ship")) {
    SLUICE_ASSIGN_OR_RETURN(const Shipment shipment,
                            PackShipment(programs, program == nullptr ? "" : program->file));
    SLUICE_RETURN_IF_ERROR(Ship(plan.hosts, shipment, &links, options.clock, note));
    options.guard_command = ShippedGuardCommand(shipment.digest);
  }
  options.version = SluiceVersion();
  // Only the program knows its output_dir, unless a flag says it.
  if (program == nullptr || !job.output_dir().empty()) options.paths = PathsOfJob(job, "output");
  if (program != nullptr) {
    SLUICE_RETURN_IF_ERROR(MakeProgramFolder(program->folder));
    options.program = *program;
    options.program_is_shipped = command.Switch("ship");
    // Rank 0 offers the job there, with the first values, which pservers read.
    options.paths.folders.push_back(
        {"--log_dir, the folder of the program's first values", program->folder});
    if (!options.program_is_shipped) options.paths.files.push_back({"--program", program->file});
  }
  SLUICE_ASSIGN_OR_RETURN(options.server_threads, ServerThreads(command));
  SLUICE_ASSIGN_OR_RETURN(options.transport, TransportOf(command));
  SLUICE_ASSIGN_OR_RETURN(options.log_limits, LogLimitsOf(command));
  SLUICE_ASSIGN_OR_RETURN(const WorkerDevices devices,
                          DevicesOfWorkers(command, plan.worker_num()));
  options.device = devices.by_rank.front();
  options.tls = plan.tls;
  options.shows_logs = command.Switch("show_logs");
  options.note = note;
  options.logs = std::move(logs);
  return HostCluster::Start(std::move(options));
}

}  // namespace sluice::cli
