#include "cli/cluster/local_cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/cluster_folders.h"
#include "cli/cluster/log_files.h"
#include "cli/jobs/endpoints.h"
#include "cli/jobs/scheduler_access.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/transport_choice.h"
#include "common/daemon/identity.h"
#include "common/daemon/process_info.h"
#include "common/daemon/process_limits.h"
#include "common/security/cert_authority.h"
#include "common/transport/retry.h"

namespace sluice::cli {
namespace {

constexpr int kTailLines = 12, kTailLinesOfProgram = 40;
// How long the CA and the certificates of a local cluster are valid: longer than it will run.
constexpr absl::Duration kCertificateLife = absl::Hours(24 * 3650),
                         kClocksDiffer = absl::Minutes(5);
constexpr absl::Duration kAfterScheduler = absl::Seconds(1);
// The user learns by then why the launch goes on after its job.
constexpr absl::Duration kTellOfProgramAfter = absl::Seconds(5);

absl::StatusOr<std::string> KnownTransport(const std::string& transport, const char* origin) {
  const absl::Status known = ParseTransportChoice(transport).status();
  if (known.ok()) return transport;
  return absl::Status(known.code(), absl::StrCat(origin, ": ", known.message()));
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
        absl::StrCat("--lease_ms=", lease_ms, " is out of range; give 100 to 3600000"));
  }
  cluster->mutable_limits()->set_lease_ms(static_cast<uint32_t>(lease_ms));
  // At least four heartbeats fit into a lease, so that a single late one costs no member its place.
  cluster->mutable_limits()->set_heartbeat_ms(static_cast<uint32_t>(std::min(500L, lease_ms / 4)));
  return absl::OkStatus();
}

absl::StatusOr<LogLimits> LogLimitsOf(const ParsedCommand& command) {
  const long max_mb = command.Number("log_max_mb"), keep = command.Number("log_keep");
  for (const char* flag : {"log_max_mb", "log_keep"}) {
    if (command.Number(flag) >= 1) continue;
    // CheckLogLimits knows the upper bounds.
    return absl::InvalidArgumentError(
        absl::StrCat("--", flag, "=", command.Number(flag), " is out of range; give 1 or more"));
  }
  SLUICE_RETURN_IF_ERROR(
      CheckLogLimits(static_cast<uint64_t>(max_mb), static_cast<uint64_t>(keep)));
  return LogLimits{static_cast<uint64_t>(max_mb), static_cast<uint32_t>(keep)};
}

absl::StatusOr<int> ServerThreads(const ParsedCommand& command) {
  const long threads = command.Number("server_threads");
  if (threads >= 1 && threads <= 1024) return static_cast<int>(threads);
  return absl::InvalidArgumentError(
      absl::StrCat("--server_threads=", threads, " is out of range; give 1 to 1024"));
}

absl::StatusOr<std::string> DefaultTransport() {
  const char* const variable = std::getenv("SLUICE_TRANSPORT");
  if (variable == nullptr || *variable == '\0') return "auto";
  return KnownTransport(variable, "SLUICE_TRANSPORT");
}

absl::StatusOr<std::string> TransportOf(const ParsedCommand& command) {
  if (!command.Given("transport")) return DefaultTransport();
  return KnownTransport(command.Text("transport"), "--transport");
}

std::vector<FlagSpec> ClusterFlags() {
  std::vector<FlagSpec> flags = {
      {"server_num", FlagKind::kNumber, "N", "2",
       "number of pservers; 0: the workers keep all tables (sync, without sparse tables)"},
      {"server_threads", FlagKind::kNumber, "N", "2",
       "threads of a pserver; each serves some of the workers"},
      {"transport", FlagKind::kText, "NAME", "auto",
       "how workers reach pservers: auto or shm (shared memory; auto falls back to gRPC), or grpc "
       "(SLUICE_TRANSPORT)"},
      {"log_dir", FlagKind::kText, "DIR", "log", "folder for the logs and endpoints.log"},
      {"log_max_mb", FlagKind::kNumber, "N", "64",
       "size of a log file of a process, MiB; a full one is renamed to FILE.1, and so on"},
      {"log_keep", FlagKind::kNumber, "N", "5",
       "log files that are kept of a process, the newest one included"}};
  for (FlagSpec& flag : DeviceFlags()) flags.push_back(std::move(flag));
  flags.push_back(
      {"tls", FlagKind::kBool, "", "",
       "mutual TLS between all processes; the certificates are made in the folder cluster_tls "
       "of the log folder"});
  // The default outlasts a breakpoint, a lid closed for a moment and a loaded machine.
  flags.push_back(
      {"lease_ms", FlagKind::kNumber, "N", "30000",
       "a process that is silent for this long counts as dead; one that exits is noticed at once"});
  return flags;
}

absl::StatusOr<std::unique_ptr<LocalCluster>> LocalCluster::Start(Options options) {
  const int daemons =
      1 + options.config.pservers_size() + static_cast<int>(options.config.worker_num());
  // All threads are counted before the first process starts. Otherwise the last one would die of
  // the limit, with a message about a thread.
  SLUICE_RETURN_IF_ERROR(CheckThreadLimit((daemons + 1) * kThreadsOfADaemon));
  std::unique_ptr<LocalCluster> cluster(new LocalCluster(std::move(options)));
  SLUICE_RETURN_IF_ERROR(cluster->Prepare());
  // The scheduler comes first: the kernel chooses its port, and the others need the address.
  SLUICE_RETURN_IF_ERROR(cluster->Spawn(ROLE_SCHEDULER, 0, {}));
  SLUICE_RETURN_IF_ERROR(cluster->AwaitScheduler());
  const Options& o = cluster->options_;
  const std::string scheduler = absl::StrCat("--scheduler=", cluster->scheduler_);
  for (int i = 0; i < o.config.pservers_size(); ++i) {
    SLUICE_RETURN_IF_ERROR(cluster->Spawn(
        ROLE_PSERVER, static_cast<uint32_t>(i),
        {scheduler, absl::StrCat("--rank=", i), absl::StrCat("--threads=", o.server_threads),
         absl::StrCat("--transport=", o.transport)}));
  }
  for (uint32_t i = 0; i < o.config.worker_num(); ++i) {
    SLUICE_RETURN_IF_ERROR(
        cluster->Spawn(ROLE_WORKER, i,
                       {scheduler, absl::StrCat("--threads=", o.threads),
                        absl::StrCat("--device=", o.devices.by_rank[i]), absl::StrCat("--rank=", i),
                        absl::StrCat("--transport=", o.transport)}));
  }
  return cluster;
}

LocalCluster::~LocalCluster() {
  // The processes of a released cluster stay. Without this, Stop would end them.
  if (released_) children_.clear();
  Stop(absl::ZeroDuration());
  for (const int fd : {keep_read_, keep_write_, meeting_socket_}) {
    if (fd >= 0) close(fd);
  }
}

absl::Status LocalCluster::Release() {
  SLUICE_RETURN_IF_ERROR(TellToStay(children_.size()));
  released_ = true;
  return absl::OkStatus();
}

absl::Status LocalCluster::TellToStay(size_t processes) {
  // One byte for each process. With one too many, a process that starts later would stay without
  // having been told to.
  const std::string bytes(processes, '+');
  if (write(keep_write_, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()))
    return absl::OkStatus();
  return absl::InternalError(
      absl::StrCat("cannot tell the processes to keep running: ", std::strerror(errno)));
}

absl::Status LocalCluster::Prepare() {
  ClusterConfig config = options_.config;
  const std::string certificates = CertificateFolder(options_.logs->path());
  if (options_.tls) config.mutable_security()->set_tls_ca(FilesOf(certificates, "").ca);
  SLUICE_RETURN_IF_ERROR(ValidateClusterConfig(config));
  SLUICE_ASSIGN_OR_RETURN(binaries_, ExecutableFolder());
  // LogFolder has made sure that Sluice wrote this file and cluster.textproto.
  std::error_code error;
  std::filesystem::remove(options_.logs->path() + "/endpoints.log", error);
  if (error) {
    return absl::InvalidArgumentError(absl::StrCat("cannot use the log folder ",
                                                   options_.logs->path(), ": ", error.message(),
                                                   "; give a writable --log_dir"));
  }
  // If this process dies, the kernel closes its end, and every process that has not read a byte
  // stops: no half cluster is left.
  if (int fds[2]; options_.detached) {
    if (pipe2(fds, O_CLOEXEC) != 0)
      return absl::InternalError(absl::StrCat("cannot create a pipe: ", std::strerror(errno)));
    keep_read_ = fds[0], keep_write_ = fds[1];
  }
  const std::string state =
      (std::filesystem::absolute(options_.logs->path(), error) / "state").string();
  // The jobs of an earlier cluster must not come back with this one.
  SLUICE_RETURN_IF_ERROR(ClearState(state));
  SLUICE_RETURN_IF_ERROR(PrepareTls(certificates));
  if (options_.program.has_value()) {
    // The job of an earlier program must not be taken for this one's.
    std::filesystem::remove_all(options_.program->folder, error);
    std::filesystem::create_directories(options_.program->folder, error);
    if (error) {
      return absl::InvalidArgumentError(absl::StrCat("cannot make ", options_.program->folder, ": ",
                                                     error.message(),
                                                     "; give a writable --log_dir"));
    }
    SLUICE_RETURN_IF_ERROR(ReserveMeetingPort());
  }
  config.set_state_store(absl::StrCat("rocksdb:", state));
  const std::string file = options_.logs->cluster_file();
  std::ofstream out(file);
  out << kOwnClusterLine << ToTextproto(config);
  out.close();
  if (out) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("cannot write ", file, "; give a writable --log_dir"));
}

absl::Status LocalCluster::ReserveMeetingPort() {
  // As long as no socket listens at the port, others with SO_REUSEADDR may bind it too, which
  // torch's store does.
  const int on = 1;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  meeting_socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (meeting_socket_ < 0 ||
      setsockopt(meeting_socket_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0 ||
      bind(meeting_socket_, any, size) != 0 || getsockname(meeting_socket_, any, &size) != 0) {
    return absl::InternalError(
        absl::StrCat("cannot reserve a port for MASTER_PORT: ", std::strerror(errno)));
  }
  meeting_port_ = ntohs(address.sin_port);
  return absl::OkStatus();
}

absl::Status LocalCluster::PrepareTls(const std::string& folder) {
  if (!options_.tls) return absl::OkStatus();
  // The mark tells the certificates of an earlier `--tls` from those of a user, whose CA must not
  // be lost.
  const std::string mark = folder + "/made_by_tls_flag";
  Env* const env = Env::Real();
  std::error_code error;
  if (env->Exists(folder) && !std::filesystem::is_empty(folder, error) && !env->Exists(mark)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tls would replace the certificates in ", folder,
                     ", which it did not make; move that folder away, or give another --log_dir"));
  }
  SLUICE_RETURN_IF_ERROR(MakeKeyFolder(folder));
  // The mark comes first. If this process dies before the certificates are complete, the next run
  // still knows the folder as its own.
  SLUICE_RETURN_IF_ERROR(env->WriteFile(mark, {"sluice replaces the certificates here\n"}));
  // Every cluster has a CA of its own: certificates of an earlier one must not open this one.
  std::vector<TlsFiles> earlier;
  for (const PeerRole role : kPeerRoles) earlier.push_back(FilesOf(folder, PeerRoleName(role)));
  earlier.push_back(FilesOf(folder, "ca"));
  for (const TlsFiles& files : earlier) {
    for (const std::string& file : {files.cert, files.key}) {
      std::filesystem::remove(file, error);
      if (!error) continue;
      return absl::InvalidArgumentError(
          absl::StrCat("cannot remove ", file, ": ", error.message(), "; give another --log_dir"));
    }
  }
  CertAuthorityOptions authority;
  authority.folder = folder;
  // The clocks of other hosts, from which operators may call, can be behind.
  authority.not_before = options_.clock->WallNow() - kClocksDiffer;
  authority.not_after = options_.clock->WallNow() + kCertificateLife;
  SLUICE_RETURN_IF_ERROR(MakeAuthority(authority));
  for (const PeerRole role : kPeerRoles)
    SLUICE_RETURN_IF_ERROR(MakeCertificate(authority, role, {}));
  SLUICE_ASSIGN_OR_RETURN(credentials_, GrpcCredentials::Create(FilesOf(folder, "operator")));
  return absl::OkStatus();
}

absl::StatusOr<ChildProcess> LocalCluster::StartProcess(Role role, uint32_t rank,
                                                        const std::vector<std::string>& flags) {
  const std::string& log_dir = options_.logs->path();
  ChildOptions child;
  child.name = absl::StrCat("sluice-", RoleName(role), " rank ", rank);
  child.argv = {absl::StrCat(binaries_, "/sluice-", RoleName(role)),
                absl::StrCat("--cluster=", options_.logs->cluster_file()),
                absl::StrCat("--log_dir=", log_dir),
                options_.detached ? "--stop_unless_kept" : "--die_with_parent",
                absl::StrCat("--log_max_mb=", options_.log_limits.max_mb),
                absl::StrCat("--log_keep=", options_.log_limits.keep)};
  child.argv.insert(child.argv.end(), flags.begin(), flags.end());
  if (options_.tls) {
    const TlsFiles files = FilesOf(CertificateFolder(log_dir), RoleName(role));
    child.argv.push_back(absl::StrCat("--tls_cert=", files.cert));
    child.argv.push_back(absl::StrCat("--tls_key=", files.key));
  }
  child.log_file = absl::StrCat(log_dir, "/", LogFileName(role, rank));
  child.detached = options_.detached;
  child.input = keep_read_;
  if (role == ROLE_WORKER && options_.program.has_value()) UseProgram(rank, &child);
  return ChildProcess::Start(std::move(child));
}

void LocalCluster::UseProgram(uint32_t rank, ChildOptions* child) const {
  const WorkerProgram& program = *options_.program;
  child->name =
      absl::StrCat(std::filesystem::path(program.file).filename().string(), " rank ", rank);
  child->argv = {program.interpreter, "-u", program.file};
  child->argv.insert(child->argv.end(), program.args.begin(), program.args.end());
  // Users of a script look for its output on the terminal; the first worker's stands for all.
  child->shows_output = rank == 0;
  child->interactive = program.debugs;
  // Absolute, since a script may change its folder.
  std::error_code error;
  const auto absolute = [&](const std::string& path) {
    return std::filesystem::absolute(path, error).string();
  };
  const auto add = [&](const char* name, const std::string& value) {
    child->environment.push_back(absl::StrCat(name, "=", value));
  };
  const std::string& logs = options_.logs->path();
  add("SLUICE_CLUSTER", absolute(options_.logs->cluster_file()));
  add("SLUICE_LOG_DIR", absolute(logs));
  add("SLUICE_SCHEDULER", scheduler_);
  add("SLUICE_RANK", absl::StrCat(rank));
  add("SLUICE_TRANSPORT", options_.transport);
  add("SLUICE_PROGRAM_DIR", absolute(program.folder));
  if (options_.tls) {
    const TlsFiles files = FilesOf(CertificateFolder(logs), RoleName(ROLE_WORKER));
    add("SLUICE_TLS_CERT", absolute(files.cert));
    add("SLUICE_TLS_KEY", absolute(files.key));
  }
  // For programs of torch.distributed, which read these variables.
  add("RANK", absl::StrCat(rank));
  add("LOCAL_RANK", absl::StrCat(rank));
  add("WORLD_SIZE", absl::StrCat(options_.config.worker_num()));
  add("MASTER_ADDR", "127.0.0.1");
  add("MASTER_PORT", absl::StrCat(meeting_port_));  // the same after a restart
  if (program.debugs) add("SLUICE_PDB", "1");
  // Its share of the host, unless the user has chosen.
  if (std::getenv("OMP_NUM_THREADS") == nullptr)
    add("OMP_NUM_THREADS", absl::StrCat(options_.threads));
  // Threads of torch that wait would otherwise spin, and take the cores from the worker's threads
  // and the pservers. sluice-worker does the same for itself (UsePassiveThreads).
  if (std::getenv("OMP_WAIT_POLICY") == nullptr) add("OMP_WAIT_POLICY", "passive");
  // The package of a build tree is beside the programs.
  const std::string package = absl::StrCat(binaries_, "/../python");
  if (!std::filesystem::exists(package + "/sluice", error)) return;
  const char* const path = std::getenv("PYTHONPATH");
  add("PYTHONPATH", path == nullptr || *path == '\0' ? package : absl::StrCat(package, ":", path));
}

absl::Status LocalCluster::Spawn(Role role, uint32_t rank, const std::vector<std::string>& flags) {
  SLUICE_ASSIGN_OR_RETURN(ChildProcess process, StartProcess(role, rank, flags));
  children_.push_back({std::move(process), role, rank, flags, options_.clock->Now()});
  return absl::OkStatus();
}

absl::Status LocalCluster::AwaitScheduler() {
  const absl::Time deadline = options_.clock->Now() + options_.start_timeout;
  while (options_.clock->Now() < deadline) {
    for (const Endpoint& e : ReadEndpoints(options_.logs->path())) {
      // Only the line of the scheduler that was just started counts.
      if (e.pid != children_[0].process.pid()) continue;
      scheduler_ = e.address;
      // Started again, it must be where the others look for it.
      children_[0].flags = {absl::StrCat("--bind=", scheduler_)};
      client_ = SchedulerClient::Create(scheduler_, options_.clock, credentials_);
      return absl::OkStatus();
    }
    SLUICE_RETURN_IF_ERROR(CheckProcesses());
    // Signals are blocked and only looked at, so that the processes are stopped in order.
    if (StopIsPending()) return absl::CancelledError("interrupted");
    options_.clock->Sleep(absl::Milliseconds(10));
  }
  return absl::DeadlineExceededError(absl::StrCat("the scheduler did not listen within ",
                                                  absl::FormatDuration(options_.start_timeout),
                                                  "; see ", children_[0].process.log_file()));
}

pid_t LocalCluster::MemberPid(const Child& child) const {
  // One that was started again is a worker itself, and the newest line may be its predecessor's.
  if (!IsProgram(child) || child.again) return child.process.pid();
  pid_t pid = child.process.pid();
  for (const Endpoint& endpoint : ReadEndpoints(options_.logs->path())) {
    if (endpoint.role == RoleName(ROLE_WORKER) && endpoint.rank == child.rank) pid = endpoint.pid;
  }
  return pid;
}

bool LocalCluster::FailedToStart(const Child& child, int wait_status) const {
  if (!IsProgram(child) || !WIFEXITED(wait_status)) return false;
  // Its worker writes this line before it joins the cluster.
  const std::vector<Endpoint> endpoints = ReadEndpoints(options_.logs->path());
  return std::none_of(endpoints.begin(), endpoints.end(),
                      [pid = MemberPid(child)](const Endpoint& e) { return e.pid == pid; });
}

std::string LocalCluster::CauseOf(const Child& child, int wait_status) const {
  const pid_t pid = MemberPid(child);
  // How a process has ended that is no child of this one is not known.
  return absl::StrCat(child.process.name(), " (pid ", pid, ") ",
                      pid == child.process.pid() ? DescribeExit(wait_status) : "has ended");
}

void LocalCluster::NoteDeaths() {
  for (Child& child : children_) {
    const auto status = child.process.Poll();
    if (child.noted || !status.has_value()) continue;
    child.noted = true;
    const std::string cause = CauseOf(child, *status);
    deaths_.push_back({MemberPid(child), cause});
    // A clean exit is a death only if the process has not left the cluster before: TellOfDeaths. One
    // that was started again and has not even joined never did what it was started for.
    if (*status != 0 || (child.again && FailedToStart(child, *status)))
      NoteLoss(&child, *status, cause);
  }
}

void LocalCluster::NoteLoss(Child* child, int wait_status, const std::string& cause) {
  // The scheduler comes first in the list, so it is known here whether it is started again; members
  // have no use without it.
  const bool alone = child->role != ROLE_SCHEDULER && SchedulerIsOver();
  if (!Supervises(*child) || alone) return;
  const absl::Time now = options_.clock->Now();
  const bool failed_start = FailedToStart(*child, wait_status);
  std::optional<absl::Duration> pause = child->policy.Died(child->started, now, failed_start);
  if (!pause.has_value()) child->why_not_again = child->policy.WhyNotAgain();
  // The user's code has ended the process, and would do so again.
  if (IsProgram(*child) && wait_status == 0 && !failed_start) {
    pause.reset();
    child->why_not_again = "before its job was over";
  }
  gave_up_ = gave_up_ || !pause.has_value();
  if (!pause.has_value()) return;
  child->start_at = now + *pause;
  note_(absl::StrCat(cause, "; it is started again in ", absl::FormatDuration(*pause), " (",
                     child->process.log_file(), ")"));
}

void LocalCluster::TellOfDeaths() {
  NoteDeaths();
  if (client_ == nullptr || SchedulerHasEnded()) return;
  for (Child& child : children_) {
    const auto status = child.process.Poll();
    if (child.told || !status.has_value()) continue;
    // One that was told to end needs no report. Whether it was matters only while it is supervised.
    if (*status == 0 && !Supervises(child)) {
      child.told = true;
      continue;
    }
    MemberEndedRequest request;
    request.set_role(child.role);
    request.set_rank(child.rank);
    request.set_pid(static_cast<uint32_t>(MemberPid(child)));
    request.set_process_space(ProcessSpace());
    request.set_reason(absl::StrCat("its process ", DescribeExit(*status)));
    // Without this the scheduler would wait until the lease of the dead member ends.
    const absl::Status told = client_->MemberEnded(request);
    // The scheduler may be stopped for a moment; the next call tries again.
    if (GotNoAnswer(told)) return;
    child.told = true;
    // NOT_FOUND: it had left the cluster, as it was told to. FAILED_PRECONDITION: the scheduler was
    // started again, and the process has ended before it registered with this one. Nobody told it to
    // then: only the end of its job would have, which the watcher of the job sees as well. One that
    // failed to start is not known either, and NoteDeaths has counted it.
    const bool unknown = absl::IsFailedPrecondition(told) && !FailedToStart(child, *status);
    if ((told.ok() || unknown) && *status == 0)
      NoteLoss(&child, *status, CauseOf(child, *status));
  }
}

absl::Status LocalCluster::HowItEnded(const Child& child, int status) const {
  const ChildProcess& process = child.process;
  // The reason is in the log. Most users look only at what this command prints.
  const bool program = IsProgram(child);
  const std::string tail =
      process.HasLogged()
          ? TailOfLog(process.log_file(), program ? kTailLinesOfProgram : kTailLines)
          : "";
  const std::string ended = absl::StrCat(
      CauseOf(child, status),
      child.gave_up() ? absl::StrCat(", ", child.why_not_again, ", and is not started again") : "");
  // Rank 0 of a program has printed on this terminal already.
  if (tail.empty() && program && child.rank == 0) return absl::InternalError(ended);
  return absl::InternalError(absl::StrCat(ended, "; the end of ", process.log_file(), ":\n",
                                          tail.empty() ? "  (nothing)" : tail));
}

std::vector<std::string> LocalCluster::AwaitPrograms(
    const std::function<bool()>& interrupted, const std::function<void(const std::string&)>& note) {
  note_ = nullptr;  // the job needs no other starts
  const absl::Time told_at = options_.clock->Now() + kTellOfProgramAfter;
  bool told = false;
  std::vector<Child*> programs;
  for (Child& child : children_) {
    // One that was started again may have come too late for the job, and one that waits for its
    // start was killed before the end of the job.
    const auto status = child.process.Poll();
    const bool killed = child.noted && status.has_value() && WIFSIGNALED(*status);
    if (child.role == ROLE_WORKER && !child.again && !child.gave_up() && !killed)
      programs.push_back(&child);
  }
  while (!interrupted()) {
    TellOfDeaths();
    const auto running = std::find_if(programs.begin(), programs.end(), [](Child* child) {
      return !child->process.Poll().has_value();
    });
    if (running == programs.end()) break;
    if (!told && options_.clock->Now() >= told_at) {
      told = true;
      note(absl::StrCat("the job is done; waits for the end of ", (*running)->process.name(),
                        " (pid ", (*running)->process.pid(), "); Ctrl-C ends it"));
    }
    options_.clock->Sleep(absl::Milliseconds(10));
  }
  std::vector<std::string> failures;
  for (Child* child : programs) {
    const auto status = child->process.Poll();
    if (!status.has_value() || *status == 0) continue;
    failures.push_back(absl::StrCat(
        child->process.name(), " (pid ", child->process.pid(), ") ", DescribeExit(*status),
        " after the job was done",
        child->rank == 0 ? "" : absl::StrCat("; its log: ", child->process.log_file())));
  }
  return failures;
}

absl::Status LocalCluster::StartAgain(Child* child) {
  const absl::Time now = options_.clock->Now();
  if (now < child->start_at) return absl::OkStatus();
  absl::StatusOr<ChildProcess> process = StartProcess(child->role, child->rank, child->flags);
  if (!process.ok()) {
    // The host may lack processes or memory for a moment: one more death of this process.
    const std::optional<absl::Duration> pause = child->policy.Died(now, now);
    if (!pause.has_value()) return process.status();
    child->start_at = now + *pause;
    note_(absl::StrCat(child->process.name(), " cannot be started: ", process.status().message(),
                       "; the next try is in ", absl::FormatDuration(*pause)));
    return absl::OkStatus();
  }
  child->process = *std::move(process);
  child->again = true;
  child->started = now;
  child->told = child->noted = false;
  child->start_at = absl::InfiniteFuture();
  // A process of a released cluster waits for its byte like the first ones.
  if (released_) SLUICE_RETURN_IF_ERROR(TellToStay(1));
  note_(absl::StrCat(child->process.name(), " runs again (pid ", child->process.pid(), ")"));
  return absl::OkStatus();
}

absl::Status LocalCluster::CheckProcesses() {
  TellOfDeaths();
  absl::Status ended;
  for (Child& child : children_) {
    const auto status = child.process.Poll();
    if (!status.has_value() || !child.noted) continue;
    const bool ended_itself = child.role == ROLE_SCHEDULER && *status == 0;
    const bool stays_dead = !Supervises(child) || ended_itself || child.gave_up();
    absl::Status one = stays_dead ? HowItEnded(child, *status) : StartAgain(&child);
    ended.Update(one);
  }
  return ended;
}

bool LocalCluster::SchedulerIsLost() {
  NoteDeaths();
  return SchedulerIsOver();
}

bool LocalCluster::SchedulerIsOver() {
  return SchedulerHasEnded() && children_[0].noted &&
         children_[0].start_at == absl::InfiniteFuture();
}

void LocalCluster::SuperviseScheduler(std::function<void(const std::string&)> note) {
  if (note_ == nullptr) note_ = std::move(note);
}

void LocalCluster::Supervise(std::function<void(const std::string&)> note) {
  // The note of SuperviseScheduler stays in use.
  if (note_ == nullptr) note_ = std::move(note);
  supervises_members_ = true;
}

bool LocalCluster::Supervises(const Child& child) const {
  return note_ != nullptr && (supervises_members_ || child.role == ROLE_SCHEDULER);
}

std::string LocalCluster::Explain(const std::string& message) {
  TellOfDeaths();
  // The newest death first: a pid may have been used again since an older one.
  for (auto death = deaths_.rbegin(); death != deaths_.rend(); ++death) {
    for (const char* after : {" ", ")"}) {
      if (absl::StrContains(message, absl::StrCat("pid ", death->pid, after))) return death->cause;
    }
  }
  return "";
}

bool LocalCluster::AllEndWithin(absl::Duration time) {
  absl::Time deadline = options_.clock->Now() + time;
  bool last = false;
  // Polls the children together instead of waiting for each in turn, so that the scheduler hears of
  // a death while it waits for the others.
  for (;;) {
    TellOfDeaths();
    const bool all = std::all_of(children_.begin(), children_.end(),
                                 [](Child& child) { return child.process.Poll().has_value(); });
    if (all) return true;
    const absl::Time now = options_.clock->Now();
    if (!last && SchedulerHasEnded()) {
      // The scheduler ends after all members that answer, so a member that is left hangs.
      last = true;
      deadline = std::min(deadline, now + kAfterScheduler);
    }
    if (now >= deadline) return false;
    options_.clock->Sleep(absl::Milliseconds(10));
  }
}

void LocalCluster::Stop(absl::Duration grace) {
  note_ = nullptr;  // no other starts
  const auto signal = [this](int number) {
    client_ = nullptr;  // deaths from here on are intended and not reported
    for (Child& child : children_) child.process.Signal(number);
  };
  // SIGTERM lets a daemon finish what it writes. SIGKILL is for one that hangs.
  if (!AllEndWithin(grace)) {
    signal(SIGTERM);
    if (!AllEndWithin(absl::Seconds(3))) {
      signal(SIGKILL);
      AllEndWithin(absl::Seconds(3));
    }
  }
  children_.clear();
}

}  // namespace sluice::cli
