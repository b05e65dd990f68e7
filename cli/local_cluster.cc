#include "cli/local_cluster.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "cli/endpoints.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"

namespace sluice::cli {
namespace {

constexpr int kTailLines = 12;
constexpr absl::Duration kAfterScheduler = absl::Seconds(1);

std::string LogName(const std::string& role, int rank) {
  return absl::StrCat(role == "pserver" ? "server" : role, "log.", rank);
}

}  // namespace

bool StopIsPending() {
  sigset_t pending;
  return sigpending(&pending) == 0 &&
         (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1 ||
          sigismember(&pending, SIGHUP) == 1);
}

ClusterConfig LoopbackCluster(const std::string& scheduler, int server_num, int worker_num) {
  ClusterConfig cluster;
  cluster.set_name("local");
  cluster.set_scheduler(scheduler);
  for (int i = 0; i < server_num; ++i) cluster.add_pservers("127.0.0.1:0");
  cluster.set_worker_num(worker_num);
  return WithDefaults(cluster);
}

int ThreadsPerWorker(int worker_num) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, worker_num));
}

absl::Status SetLease(const ParsedCommand& command, ClusterConfig* cluster) {
  const long lease_ms = command.Number("lease_ms");
  if (lease_ms < 100 || lease_ms > 3'600'000) {
    return absl::InvalidArgumentError(
        absl::StrCat("--lease_ms=", lease_ms, " is not possible; give 100 to 3600000"));
  }
  cluster->mutable_limits()->set_lease_ms(static_cast<uint32_t>(lease_ms));
  cluster->mutable_limits()->set_heartbeat_ms(static_cast<uint32_t>(std::min(500L, lease_ms / 4)));
  return absl::OkStatus();
}

absl::StatusOr<int> ServerThreads(const ParsedCommand& command) {
  const long threads = command.Number("server_threads");
  if (threads >= 1 && threads <= 1024) return static_cast<int>(threads);
  return absl::InvalidArgumentError(
      absl::StrCat("--server_threads=", threads, " is not possible; give 1 to 1024"));
}

std::vector<FlagSpec> ClusterFlags() {
  std::vector<FlagSpec> flags = {
      {"server_num", FlagKind::kNumber, "N", "2", "pservers"},
      {"server_threads", FlagKind::kNumber, "N", "2",
       "threads of a pserver; each serves some of the workers"},
      {"log_dir", FlagKind::kText, "DIR", "log", "folder of the logs and endpoints.log"}};
  for (FlagSpec& flag : DeviceFlags()) flags.push_back(std::move(flag));
  // On one host a report is late only when the process is gone or the host is overloaded.
  flags.push_back(
      {"lease_ms", FlagKind::kNumber, "N", "6000", "a process that is silent for so long is dead"});
  return flags;
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(Options options) {
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(options)));
  SLUICE_RETURN_IF_ERROR(cluster->Prepare());
  SLUICE_RETURN_IF_ERROR(cluster->Spawn("scheduler", 0, {}));
  SLUICE_RETURN_IF_ERROR(cluster->AwaitScheduler());
  const Options& o = cluster->options_;
  const std::string scheduler = absl::StrCat("--scheduler=", cluster->scheduler_);
  for (int i = 0; i < o.config.pservers_size(); ++i) {
    SLUICE_RETURN_IF_ERROR(cluster->Spawn(
        "pserver", i,
        {scheduler, absl::StrCat("--rank=", i), absl::StrCat("--threads=", o.server_threads)}));
  }
  for (uint32_t i = 0; i < o.config.worker_num(); ++i) {
    SLUICE_RETURN_IF_ERROR(cluster->Spawn(
        "worker", static_cast<int>(i),
        {scheduler, absl::StrCat("--threads=", o.threads),
         absl::StrCat("--device=", o.devices.by_rank[i]), absl::StrCat("--rank=", i)}));
  }
  return cluster;
}

LocalCluster::~LocalCluster() {
  Stop(absl::ZeroDuration());
  for (const int fd : {keep_read_, keep_write_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status LocalCluster::Release() {
  const std::string bytes(children_.size(), '+');
  if (write(keep_write_, bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) {
    return absl::InternalError(
        absl::StrCat("cannot tell the processes to stay: ", std::strerror(errno)));
  }
  children_.clear();
  return absl::OkStatus();
}

absl::Status LocalCluster::Prepare() {
  SLUICE_RETURN_IF_ERROR(ValidateClusterConfig(options_.config));
  SLUICE_ASSIGN_OR_RETURN(binaries_, ExecutableFolder());
  for (const Endpoint& e : ReadEndpoints(options_.log_dir)) {
    if (!IsAlive(e)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "a cluster runs in ", options_.log_dir, " (", e.role, " ", e.rank, ", pid ", e.pid,
        "); stop it with sluice "
        "down --log_dir=",
        options_.log_dir, ", or give another --log_dir"));
  }
  std::error_code error;
  std::filesystem::create_directories(options_.log_dir, error);
  if (!error) std::filesystem::remove(options_.log_dir + "/endpoints.log", error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot use the log folder ", options_.log_dir,
                                                   ": ", error.message(),
                                                   "; give a writable --log_dir"));
  }
  if (int fds[2]; options_.detached) {
    if (pipe2(fds, O_CLOEXEC) != 0)
      return absl::InternalError(absl::StrCat("cannot make a pipe: ", std::strerror(errno)));
    keep_read_ = fds[0], keep_write_ = fds[1];
  }
  cluster_file_ = options_.log_dir + "/cluster.textproto";
  std::ofstream out(cluster_file_);
  out << ToTextproto(options_.config);
  out.close();
  if (out) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write ", cluster_file_, "; give a writable --log_dir"));
}

absl::Status LocalCluster::Spawn(const std::string& role, int rank,
                                 const std::vector<std::string>& flags) {
  ChildOptions child;
  child.name = absl::StrCat("sluice-", role, " rank ", rank);
  child.argv = {absl::StrCat(binaries_, "/sluice-", role),
                absl::StrCat("--cluster=", cluster_file_),
                absl::StrCat("--log_dir=", options_.log_dir),
                options_.detached ? "--stop_unless_kept" : "--die_with_parent",
                // A cluster of one job needs no folder a job.
                absl::StrCat("--job_log_folders=", options_.detached ? "true" : "false")};
  child.argv.insert(child.argv.end(), flags.begin(), flags.end());
  child.log_file = absl::StrCat(options_.log_dir, "/", LogName(role, rank));
  child.detached = options_.detached;
  child.input = keep_read_;
  SLUICE_ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start(std::move(child)));
  children_.push_back(std::move(process));
  return absl::OkStatus();
}

absl::Status LocalCluster::AwaitScheduler() {
  const absl::Time deadline = absl::Now() + options_.start_timeout;
  while (absl::Now() < deadline) {
    for (const Endpoint& e : ReadEndpoints(options_.log_dir)) {
      if (e.pid != children_[0].pid()) continue;
      scheduler_ = e.address;
      return absl::OkStatus();
    }
    SLUICE_RETURN_IF_ERROR(Check());
    if (StopIsPending()) return absl::CancelledError("interrupted");
    absl::SleepFor(absl::Milliseconds(10));
  }
  return absl::DeadlineExceededError(absl::StrCat("the scheduler did not listen within ",
                                                  absl::FormatDuration(options_.start_timeout),
                                                  "; see ", children_[0].log_file()));
}

absl::Status LocalCluster::Check() {
  for (ChildProcess& child : children_) {
    const auto status = child.Poll();
    if (!status.has_value()) continue;
    const std::string tail = TailOfFile(child.log_file(), kTailLines);
    return absl::InternalError(absl::StrCat(
        child.name(), " (pid ", child.pid(), ") ", DescribeExit(*status), "; the end of ",
        child.log_file(), ":\n", tail.empty() ? "  (it is empty)" : tail));
  }
  return absl::OkStatus();
}

bool LocalCluster::AllEndUntil(absl::Time deadline) {
  bool all = true;
  for (ChildProcess& child : children_) all = child.WaitUntil(deadline) && all;
  return all;
}

void LocalCluster::Stop(absl::Duration grace) {
  const auto wait = [this](absl::Duration time) {
    const absl::Time deadline = absl::Now() + time;
    // The scheduler ends after the members that still answer: who is left then hangs.
    const absl::Time last = deadline - kAfterScheduler;
    if (!children_.empty() && last > absl::Now() && children_[0].WaitUntil(last)) {
      return AllEndUntil(absl::Now() + kAfterScheduler);
    }
    return AllEndUntil(deadline);
  };
  const auto signal = [this](int number) {
    for (ChildProcess& child : children_) child.Signal(number);
  };
  if (!wait(grace)) {
    signal(SIGTERM);
    if (!wait(absl::Seconds(3))) {
      signal(SIGKILL);
      wait(absl::Seconds(3));
    }
  }
  children_.clear();
}

}  // namespace sluice::cli
