// sluice up: starts a local cluster that stays.
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/cluster/background_process.h"
#include "cli/cluster/local_cluster.h"
#include "cli/commands/commands.h"
#include "cli/jobs/dashboard_address.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/watch_job.h"
#include "cli/screen/command_line.h"
#include "cli/screen/format.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/daemon/identity.h"
#include "common/daemon/process_info.h"
#include "common/daemon/scheduler_client.h"
#include "common/daemon/stop_signal.h"

namespace sluice::cli {
namespace {

constexpr absl::Duration kUpReadyTimeout = absl::Seconds(60);

absl::Status CheckBind(const ParsedCommand& command) {
  const std::string text = command.Text("bind");
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("--bind=", text, ": ", why...));
  };
  const auto address = ParseAddress(text);
  if (!address.ok()) return refuse(address.status().message());
  // The address is also the one that members and operators are given.
  if (address->host == "0.0.0.0" || address->host == "::") {
    return refuse(
        "stands for all interfaces, and nobody can connect to it; give one address of "
        "this host that others can reach, e.g. --bind=",
        HostName(), ":", address->port == 0 ? 7100 : address->port, " --tls");
  }
  if (command.Switch("tls") || command.Switch("insecure") || IsLoopback(address->host))
    return absl::OkStatus();
  return refuse(
      "is not a loopback address: without TLS, anyone who reaches it can control the cluster; add "
      "--tls, or on a network that you trust --insecure");
}

// The folders of a flag, or else of its variable; both are comma-separated.
void SetRoots(const ParsedCommand& command, const std::string& flag,
              google::protobuf::RepeatedPtrField<std::string>* roots) {
  const char* const variable = std::getenv(("SLUICE_" + absl::AsciiStrToUpper(flag)).c_str());
  const std::string text = command.Given(flag)   ? command.Text(flag)
                           : variable != nullptr ? variable
                                                 : "";
  if (text.empty()) return;
  for (const absl::string_view root : absl::StrSplit(text, ',')) roots->Add(std::string(root));
}

absl::StatusOr<LocalCluster::Options> ClusterFromFlags(const ParsedCommand& command) {
  const long servers = command.Number("server_num");
  SLUICE_ASSIGN_OR_RETURN(const uint32_t of_gpus, WorkersOfGpus(command));
  const long workers = of_gpus > 0 && !command.Given("worker_num") ? static_cast<long>(of_gpus)
                                                                   : command.Number("worker_num");
  if (servers < 0 || servers > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--server_num=", servers, " is out of range; give 0 to 1000"));
  }
  if (workers < 0 || workers > 1000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--worker_num=", workers, " is out of range; give 0 to 1000"));
  }
  SLUICE_RETURN_IF_ERROR(CheckBind(command));
  if (command.Given("threads") && command.Number("threads") < 1) {
    return absl::InvalidArgumentError("--threads must be at least 1");
  }
  SLUICE_ASSIGN_OR_RETURN(WorkerDevices devices,
                          DevicesOfWorkers(command, static_cast<uint32_t>(workers)));
  LocalCluster::Options options;
  options.clock = Clock::Real();
  options.config =
      LoopbackCluster(command.Text("bind"), static_cast<int>(servers), static_cast<int>(workers));
  SecurityConfig* const security = options.config.mutable_security();
  security->set_insecure(command.Switch("insecure"));
  security->set_any_local_user(command.Switch("any_local_user"));
  SetRoots(command, "data_root", security->mutable_data_root());
  SetRoots(command, "output_root", security->mutable_output_root());
  SLUICE_RETURN_IF_ERROR(SetLease(command, &options.config));
  SLUICE_ASSIGN_OR_RETURN(options.server_threads, ServerThreads(command));
  SLUICE_ASSIGN_OR_RETURN(options.transport, TransportOf(command));
  SLUICE_ASSIGN_OR_RETURN(options.log_limits, LogLimitsOf(command));
  options.devices = std::move(devices);
  options.tls = command.Switch("tls");
  options.threads = command.Given("threads") ? static_cast<int>(command.Number("threads"))
                                             : ThreadsPerWorker(static_cast<int>(workers));
  options.detached = true;
  return options;
}

// Waits until every process has registered.
absl::Status AwaitMembers(LocalCluster* cluster, int members) {
  const auto client =
      SchedulerClient::Create(cluster->scheduler(), Clock::Real(), cluster->credentials());
  const absl::Time deadline = Clock::Real()->Now() + kUpReadyTimeout;
  int alive = 0;
  while (Clock::Real()->Now() < deadline) {
    SLUICE_RETURN_IF_ERROR(cluster->CheckProcesses());
    const auto status = client->GetStatus();
    alive = 0;
    if (status.ok()) {
      for (const MemberStatus& member : status->members()) {
        if (member.alive() && member.role() != ROLE_SCHEDULER) ++alive;
      }
    }
    if (StopIsPending()) return absl::CancelledError("interrupted");
    if (alive >= members) return absl::OkStatus();
    Clock::Real()->Sleep(absl::Milliseconds(50));
  }
  return absl::DeadlineExceededError(
      absl::StrCat("only ", alive, " of ", members, " processes registered within ",
                   absl::FormatDuration(kUpReadyTimeout), "; see their logs"));
}

// Names this process in endpoints.log, for `sluice down`.
absl::Status NameSupervisor(const std::string& log_dir) {
  std::ofstream out(log_dir + "/endpoints.log", std::ios::app);
  out << absl::StrCat(kSupervisorRole, " 0 - ", getpid(), " -\n");
  out.close();
  if (out) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("cannot write ", log_dir, "/endpoints.log"));
}

// Starts dead processes of the cluster again until its scheduler has ended for good or a signal
// comes.
int SuperviseUntilEnd(LocalCluster* cluster, LogFile* log) {
  constexpr absl::Duration kLook = absl::Milliseconds(100), kAfterScheduler = absl::Seconds(1);
  std::string complaint;
  // Not StopIsPending: SIGHUP may be pending for a moment, and does not stop this process.
  while (!StopSignal::IsWanted(0) && !cluster->SchedulerIsLost()) {
    const absl::Status status = cluster->CheckProcesses();
    // The same error comes with every look, and the log would fill with it.
    if (!status.ok() && status.message() != complaint) {
      complaint = std::string(status.message());
      log->Write(complaint + "\n");
    }
    Clock::Real()->Sleep(kLook);
  }
  // A member that was just started did not hear of the scheduler's end.
  if (!StopSignal::IsWanted(0)) cluster->Stop(kAfterScheduler);
  return kDone;
}

int Up(const ParsedCommand& command) {
  auto options = ClusterFromFlags(command);
  if (!options.ok()) return ReportError(options.status());
  // The process that starts the cluster stays as its supervisor.
  BackgroundProcess supervisor;
  if (const std::optional<int> code = supervisor.Split()) return *code;
  const std::string log_dir = command.Text("log_dir");
  const LogLimits log_limits = options->log_limits;
  const int servers = options->config.pservers_size();
  const int workers = static_cast<int>(options->config.worker_num());
  // From here on, Ctrl-C stops the processes that have been started.
  StopSignal::Install(false);
  std::string gpus;
  if (const absl::Status there = CheckDevices(options->devices, &ListCudaDevices, &gpus);
      !there.ok()) {
    return ReportError(there);
  }
  auto logs = LogFolder::Take(log_dir, Env::Real());
  if (!logs.ok()) return ReportError(logs.status());
  options->logs = *std::move(logs);
  auto cluster = LocalCluster::Start(*std::move(options));
  absl::Status ready =
      cluster.ok() ? AwaitMembers(cluster->get(), servers + workers) : cluster.status();
  if (ready.ok()) ready = NameSupervisor(log_dir);
  if (ready.ok()) ready = (*cluster)->Release();
  if (absl::IsCancelled(ready)) return StopSignal::Wait();
  if (!ready.ok()) {
    ReportError(ready);
    return absl::IsInvalidArgument(ready) || absl::IsNotFound(ready) ? kBadUsage : kJobFailed;
  }
  const std::string log_flag = log_dir == "log" ? "" : absl::StrCat(" --log_dir=", log_dir);
  std::cout << gpus << "cluster is up: scheduler " << (*cluster)->scheduler() << ", "
            << Counted(servers, "pserver") << ", " << Counted(workers, "worker") << "; logs in "
            << log_dir << "\n"
            << "  sluice submit --job=FILE" << log_flag << "\n  sluice status" << log_flag
            << "\n  sluice down" << log_flag << "\n"
            << "  " << DashboardLineOf(log_dir, (*cluster)->credentials().tls()) << std::endl;
  const std::string log_file = log_dir + "/supervisorlog.0";
  const auto log = LogFile::Open(log_file, LogFile::BytesOf(log_limits));
  if (!log.ok()) return ReportError(log.status());
  if (const absl::Status stays = supervisor.Detach(kDone, log_file); !stays.ok())
    return ReportError(stays);
  StopSignal::ReopenOnHangUp([&log] { (*log)->Reopen(); });
  (*cluster)->Supervise([&log](const std::string& line) { (*log)->Write(line + "\n"); });
  return SuperviseUntilEnd(cluster->get(), log->get());
}

}  // namespace

Command UpCommand() {
  CommandSpec spec;
  spec.name = "up";
  spec.summary = "Starts a local cluster that stays, for many jobs.";
  spec.flags = ClusterFlags();
  spec.flags.push_back(
      {"worker_num", FlagKind::kNumber, "N", "2", "number of workers; --gpus sets it"});
  spec.flags.push_back(
      {"bind", FlagKind::kText, "HOST:PORT", "127.0.0.1:0", "address of the scheduler"});
  spec.flags.push_back({"insecure", FlagKind::kBool, "", "",
                        "allow a --bind that is not loopback, without TLS; pservers and workers "
                        "stay on loopback"});
  spec.flags.push_back({"any_local_user", FlagKind::kBool, "", "",
                        "without TLS, also serve other users of this host"});
  spec.flags.push_back({"data_root", FlagKind::kText, "DIR|URL,...", "",
                        "jobs read only below these folders and the output roots "
                        "(SLUICE_DATA_ROOT)"});
  spec.flags.push_back({"output_root", FlagKind::kText, "DIR|URL,...", "",
                        "jobs write only below these folders, or s3://BUCKET/FOLDER "
                        "(SLUICE_OUTPUT_ROOT)"});
  spec.flags.push_back({"threads", FlagKind::kNumber, "N", "",
                        "compute threads per worker; default: cores / workers"});
  spec.examples =
      "  sluice up --server_num=2 --worker_num=4\n"
      "  sluice up --server_num=0 --worker_num=4        # for sync jobs without sparse tables\n"
      "  sluice up --gpus=0,1 --cpu_workers=2           # GPUs: not run on one yet\n"
      "  sluice up --bind=127.0.0.1:7100 --log_dir=/var/tmp/sluice\n"
      "  sluice up --bind=10.0.0.1:7100 --tls           # others submit to it from other hosts, "
      "with operator.pem, operator.key and ca.pem of log/cluster_tls\n";
  return {spec, &Up};
}

}  // namespace sluice::cli
