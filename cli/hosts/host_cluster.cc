#include "cli/hosts/host_cluster.h"

#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/child_process.h"
#include "cli/hosts/host_inspection.h"
#include "cli/jobs/scheduler_access.h"
#include "cli/screen/format.h"
#include "common/base/env.h"
#include "common/base/file_origin.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/config/job_config.h"
#include "common/daemon/identity.h"
#include "common/security/cert_authority.h"
#include "common/transport/retry.h"

namespace sluice::cli {
namespace {

constexpr size_t kTailOfDaemon = 12, kTailOfProgram = 40;
constexpr absl::Duration kTellOfProgramsAfter = absl::Seconds(3);
constexpr absl::Duration kCertificatesBehind = absl::Hours(24),
                         kCertificatesLive = absl::Hours(24 * 365);
constexpr char kCertificates[] = "tls";  // in a guard's folder

std::string AddressText(const std::string& host, uint32_t port) {
  return ToText(Address{host, static_cast<uint16_t>(port)});
}

}  // namespace

HostCluster::HostCluster(Options options)
    : options_(std::move(options)), guards_([this] {
        HostGuards::Options guards;
        guards.clock = options_.clock;
        guards.links = options_.links;
        guards.hosts = options_.hosts;
        guards.guard_command = options_.guard_command;
        guards.version = options_.version;
        guards.events.log = [this](const std::string& id, const std::string& line) {
          TakeLog(id, line);
        };
        // Users of a script look for its output on the terminal; the first worker's stands for all.
        guards.events.out = [this](const std::string&, const std::string& line) {
          options_.note(PrintableLine(line));
        };
        guards.events.ended = [this](const std::string& id, uint32_t pid, int wait_status) {
          Daemon* const daemon = FindDaemon(id);
          if (daemon == nullptr || !daemon->running) return;
          // The answer to its start may have come with this, and has not been looked at then.
          daemon->pid = pid;
          TakeEnd(daemon, DescribeExit(wait_status), wait_status != 0);
        };
        guards.events.lost = [this](size_t host) { TakeLoss(host); };
        return guards;
      }()) {}

absl::StatusOr<std::unique_ptr<HostCluster>> HostCluster::Start(Options options) {
  std::unique_ptr<HostCluster> cluster(new HostCluster(std::move(options)));
  const Options& own = cluster->options_;
  SLUICE_RETURN_IF_ERROR(cluster->guards_.Connect());
  Inspection inspection;
  inspection.rules = {own.version, own.tls};
  inspection.paths = own.paths;
  if (own.program.has_value()) inspection.interpreter = own.program->interpreter;
  SLUICE_RETURN_IF_ERROR(InspectHosts(inspection, &cluster->guards_, own.note));
  SLUICE_RETURN_IF_ERROR(cluster->MakeCertificates());
  SLUICE_RETURN_IF_ERROR(cluster->SendFiles());
  SLUICE_RETURN_IF_ERROR(cluster->StartDaemons());
  return cluster;
}

HostCluster::~HostCluster() { Stop(absl::ZeroDuration()); }

absl::Status HostCluster::CheckPaths(const SharedPaths& paths) {
  return InspectPaths(paths, &guards_);
}

// ----------------------------------------------------------------------------------------
// preparing

absl::Status HostCluster::MakeCertificates() {
  if (!options_.tls) return absl::OkStatus();
  SLUICE_ASSIGN_OR_RETURN(certificates_, OwnFolder::Make("tls"));
  const std::string& folder = certificates_->path();
  CertAuthorityOptions authority;
  authority.folder = folder;
  authority.not_before = options_.clock->WallNow() - kCertificatesBehind;
  authority.not_after = options_.clock->WallNow() + kCertificatesLive;
  SLUICE_RETURN_IF_ERROR(MakeAuthority(authority));
  std::vector<std::string> names;
  for (const HostSpec& host : options_.hosts) names.push_back(host.name);
  for (const PeerRole role : kPeerRoles)
    SLUICE_RETURN_IF_ERROR(MakeCertificate(authority, role, names));
  SLUICE_ASSIGN_OR_RETURN(credentials_, GrpcCredentials::Create(FilesOf(folder, "operator")));
  // Nobody is to make more of them.
  (void)Env::Real()->RemoveFile(FilesOf(folder, "ca").key);
  return absl::OkStatus();
}

absl::Status HostCluster::SendFiles() {
  ClusterConfig config;
  config.set_name("hosts");
  config.set_scheduler(AddressText(options_.hosts[options_.placement.scheduler].name, 0));
  for (const size_t host : options_.placement.pservers)
    config.add_pservers(AddressText(options_.hosts[host].name, 0));
  config.set_worker_num(static_cast<uint32_t>(options_.placement.workers.size()));
  *config.mutable_limits() = options_.limits;
  config.mutable_security()->set_insecure(!options_.tls);
  // For `sluice logs`; what an earlier cluster has left there is over.
  std::error_code error;
  std::filesystem::remove(options_.logs->path() + "/endpoints.log", error);
  std::ofstream(options_.logs->cluster_file()) << kOwnClusterLine << ToTextproto(config);
  std::vector<std::pair<size_t, uint64_t>> tags;
  for (size_t i = 0; i < guards_.size(); ++i) {
    const std::string& folder = guards_.at(i).folder;
    ClusterConfig own = config;
    own.set_state_store(absl::StrCat("rocksdb:", folder, "/state"));
    if (options_.tls)
      own.mutable_security()->set_tls_ca(FilesOf(absl::StrCat(folder, "/", kCertificates), "").ca);
    own = WithDefaults(own);
    SLUICE_RETURN_IF_ERROR(ValidateClusterConfig(own));
    tags.emplace_back(i, guards_.Send(i, "file",
                                      {"cluster.textproto", absl::StrCat(0600),
                                       absl::StrCat(kOwnClusterLine, ToTextproto(own))}));
    if (!options_.tls) continue;
    for (const Role role : {ROLE_SCHEDULER, ROLE_PSERVER, ROLE_WORKER}) {
      // The scheduler stays on its host.
      if (role == ROLE_SCHEDULER && i != options_.placement.scheduler) continue;
      const TlsFiles files = FilesOf(certificates_->path(), RoleName(role));
      for (const std::string& file : {files.cert, files.key, files.ca}) {
        SLUICE_ASSIGN_OR_RETURN(const std::string content, Env::Real()->ReadFile(file));
        const std::string name = std::filesystem::path(file).filename().string();
        tags.emplace_back(
            i, guards_.Send(i, "file",
                            {absl::StrCat(kCertificates, "/", name), absl::StrCat(0600), content}));
      }
    }
  }
  for (const auto& [host, tag] : tags) {
    const auto written = guards_.Await(host, tag);
    if (written.ok()) continue;
    return absl::Status(written.status().code(),
                        absl::StrCat(options_.hosts[host].name, ": ", written.status().message()));
  }
  return absl::OkStatus();
}

// --------------------------------------------------------------------------------------- starting

std::vector<std::string> HostCluster::CommandOf(const Daemon& daemon) const {
  const HostGuards::Host& host = guards_.at(daemon.host);
  std::vector<std::string> command = {absl::StrCat("sluice-", RoleName(daemon.role)),
                                      absl::StrCat("--cluster=", host.folder, "/cluster.textproto"),
                                      absl::StrCat("--log_dir=", host.folder, "/log"),
                                      "--die_with_parent",
                                      absl::StrCat("--log_max_mb=", options_.log_limits.max_mb),
                                      absl::StrCat("--log_keep=", options_.log_limits.keep)};
  const auto add = [&](const auto&... text) { command.push_back(absl::StrCat(text...)); };
  if (options_.tls) {
    const TlsFiles files =
        FilesOf(absl::StrCat(host.folder, "/", kCertificates), RoleName(daemon.role));
    add("--tls_cert=", files.cert);
    add("--tls_key=", files.key);
  }
  if (daemon.role == ROLE_SCHEDULER) {
    add("--bind={bind}");
    add("--advertise={advertise}");
    return command;
  }
  add("--scheduler=", scheduler_);
  add("--rank=", daemon.rank);
  add("--transport=", options_.transport);
  if (daemon.role == ROLE_PSERVER) {
    add("--bind={bind}");
    add("--advertise={advertise}");
    add("--threads=", options_.server_threads);
    // A guard ends all daemons of its host, so there is nobody to move shards to.
    add("--drain_s=0");
  } else {
    const uint32_t workers = std::max(1U, options_.placement.WorkersOn(daemon.host));
    add("--threads=", std::max(1U, host.cores / workers));
    add("--device=", options_.device);
  }
  return command;
}

HostGuards::Fields HostCluster::ProgramFields(const Daemon& daemon) const {
  const WorkerProgram& program = *options_.program;
  const HostGuards::Host& host = guards_.at(daemon.host);
  const uint32_t workers = std::max(1U, options_.placement.WorkersOn(daemon.host));
  std::vector<std::string> variables;
  const auto add = [&](const char* name, const auto&... value) {
    variables.push_back(absl::StrCat(name, "=", value...));
  };
  add("SLUICE_CLUSTER", host.folder, "/cluster.textproto");
  add("SLUICE_LOG_DIR", host.folder, "/log");
  add("SLUICE_SCHEDULER", scheduler_);
  add("SLUICE_RANK", daemon.rank);
  add("SLUICE_TRANSPORT", options_.transport);
  add("SLUICE_PROGRAM_DIR", program.folder);
  if (options_.tls) {
    const TlsFiles files =
        FilesOf(absl::StrCat(host.folder, "/", kCertificates), RoleName(ROLE_WORKER));
    add("SLUICE_TLS_CERT", files.cert);
    add("SLUICE_TLS_KEY", files.key);
  }
  // For programs of torch.distributed, which read these variables.
  const std::vector<size_t>& placed = options_.placement.workers;
  add("RANK", daemon.rank);
  add("LOCAL_RANK", std::count(placed.begin(), placed.begin() + daemon.rank, placed[daemon.rank]));
  add("WORLD_SIZE", placed.size());
  add("MASTER_ADDR", options_.hosts[placed[0]].name);
  add("MASTER_PORT", meeting_port_);
  // Its share of the host, unless the user has chosen.
  const char* const threads = std::getenv("OMP_NUM_THREADS");
  add("OMP_NUM_THREADS",
      threads != nullptr ? threads : absl::StrCat(std::max(1U, host.cores / workers)));
  // As on one host: LocalCluster::UseProgram.
  const char* const policy = std::getenv("OMP_WAIT_POLICY");
  add("OMP_WAIT_POLICY", policy != nullptr ? policy : "passive");
  const std::string log = LogFileName(daemon.role, daemon.rank);
  HostGuards::Fields fields = {daemon.id, log, daemon.rank == 0 ? "1" : "0",
                               absl::StrCat(variables.size())};
  fields.insert(fields.end(), variables.begin(), variables.end());
  const std::string script = std::filesystem::path(program.file).filename().string();
  const std::string file = options_.program_is_shipped
                               ? absl::StrCat(host.programs, "/../script/", script)
                               : program.file;
  fields.insert(fields.end(), {program.interpreter, "-u", file});
  fields.insert(fields.end(), program.args.begin(), program.args.end());
  return fields;
}

absl::Status HostCluster::StartDaemon(Daemon* daemon) {
  const std::string& host = options_.hosts[daemon->host].name;
  daemon->id = absl::StrCat(RoleName(daemon->role), ".", daemon->rank, ".", ++daemon->lives);
  daemon->started = options_.clock->Now();
  PortRange ports = options_.ports;
  // Started again, the scheduler must be where the others look for it.
  if (daemon->role == ROLE_SCHEDULER && !scheduler_.empty()) {
    SLUICE_ASSIGN_OR_RETURN(const Address address, ParseAddress(scheduler_));
    ports = {address.port, address.port};
  }
  HostGuards::Fields fields;
  if (IsProgram(*daemon)) {
    fields = ProgramFields(*daemon);
  } else {
    fields = {daemon->id, LogFileName(daemon->role, daemon->rank), absl::StrCat(ports.from),
              absl::StrCat(ports.to), host};
    for (std::string& word : CommandOf(*daemon)) fields.push_back(std::move(word));
  }
  // Its end may come with the answer.
  daemon->running = true;
  daemon->end.clear();
  daemon->host_gone = false;
  const char* const verb = IsProgram(*daemon) ? "run" : "start";
  const auto answer = guards_.Ask(daemon->host, verb, std::move(fields));
  uint32_t port = 0;
  if (!answer.ok() || answer->size() != 2 || !absl::SimpleAtoi((*answer)[0], &daemon->pid) ||
      !absl::SimpleAtoi((*answer)[1], &port)) {
    daemon->running = false;
    if (absl::IsCancelled(answer.status())) return answer.status();
    return absl::InternalError(absl::StrCat(host, ": cannot start ", daemon->name, ": ",
                                            answer.ok() ? "no answer" : answer.status().message()));
  }
  if (daemon->role == ROLE_SCHEDULER && scheduler_.empty()) scheduler_ = AddressText(host, port);
  return absl::OkStatus();
}

absl::Status HostCluster::ReserveMeetingPort() {
  const size_t first = options_.placement.workers[0];
  const auto port = guards_.Ask(
      first, "port", {absl::StrCat(options_.ports.from), absl::StrCat(options_.ports.to)});
  if (port.ok() && port->size() == 1 && absl::SimpleAtoi((*port)[0], &meeting_port_))
    return absl::OkStatus();
  if (absl::IsCancelled(port.status())) return port.status();
  return absl::InternalError(absl::StrCat(options_.hosts[first].name,
                                          ": cannot reserve a port for MASTER_PORT: ",
                                          port.ok() ? "no answer" : port.status().message()));
}

absl::Status HostCluster::StartDaemons() {
  const auto add = [this](Role role, uint32_t rank, size_t host) -> absl::Status {
    Daemon daemon;
    daemon.role = role;
    daemon.rank = rank;
    daemon.host = host;
    daemon.name =
        IsProgram(daemon)
            ? absl::StrCat(std::filesystem::path(options_.program->file).filename().string(),
                           " rank ", rank)
            : absl::StrCat("sluice-", RoleName(role), " rank ", rank);
    const std::string file = absl::StrCat(options_.logs->path(), "/", LogFileName(role, rank));
    SLUICE_ASSIGN_OR_RETURN(daemon.log, LogFile::Open(file, LogFile::BytesOf(options_.log_limits)));
    daemons_.push_back(std::move(daemon));
    return absl::OkStatus();
  };
  const Placement& placement = options_.placement;
  SLUICE_RETURN_IF_ERROR(add(ROLE_SCHEDULER, 0, placement.scheduler));
  for (uint32_t i = 0; i < placement.pservers.size(); ++i)
    SLUICE_RETURN_IF_ERROR(add(ROLE_PSERVER, i, placement.pservers[i]));
  for (uint32_t i = 0; i < placement.workers.size(); ++i)
    SLUICE_RETURN_IF_ERROR(add(ROLE_WORKER, i, placement.workers[i]));
  // The others need its address.
  SLUICE_RETURN_IF_ERROR(StartDaemon(&daemons_[0]));
  if (options_.program.has_value()) SLUICE_RETURN_IF_ERROR(ReserveMeetingPort());
  for (size_t i = 1; i < daemons_.size(); ++i) SLUICE_RETURN_IF_ERROR(StartDaemon(&daemons_[i]));
  client_ = SchedulerClient::Create(scheduler_, options_.clock, credentials_);
  return absl::OkStatus();
}

// --------------------------------------------------------------------- what guards tell of daemons

HostCluster::Daemon* HostCluster::FindDaemon(const std::string& id) {
  for (Daemon& daemon : daemons_) {
    if (daemon.id == id) return &daemon;
  }
  return nullptr;
}

void HostCluster::TakeLog(const std::string& id, const std::string& line) {
  Daemon* const daemon = FindDaemon(id);
  if (daemon == nullptr) return;
  daemon->log->Write(line + "\n");
  daemon->tail.push_back(line);
  if (daemon->tail.size() > (IsProgram(*daemon) ? kTailOfProgram : kTailOfDaemon))
    daemon->tail.pop_front();
  if (options_.shows_logs) {
    options_.note(absl::StrCat(options_.hosts[daemon->host].name, " ",
                               LogFileName(daemon->role, daemon->rank), ": ", PrintableLine(line)));
  }
}

void HostCluster::TakeEnd(Daemon* daemon, const std::string& end, bool failed) {
  daemon->running = false;
  daemon->failed = failed;
  daemon->end = absl::StrCat(daemon->name, " on ", options_.hosts[daemon->host].name, " (pid ",
                             daemon->pid, ") ", end);
  daemon->told = false;
  deaths_.push_back({daemon->pid, daemon->end});
  if (failed) PlanNextLife(daemon);
}

void HostCluster::TakeLoss(size_t host) {
  const HostGuards::Host& lost = guards_.at(host);
  size_t daemons = 0;
  for (Daemon& daemon : daemons_) {
    if (daemon.host != host) continue;
    if (daemon.role == ROLE_SCHEDULER) scheduler_lost_ = true;
    // One that waits for its next start there starts elsewhere.
    if (!daemon.running && daemon.start_at == absl::InfiniteFuture()) continue;
    daemon.host_gone = true;
    ++daemons;
    if (daemon.running) {
      TakeEnd(&daemon, absl::StrCat("is lost with its host, which ", lost.gone), true);
    } else {
      daemon.start_at = lost.heard + HostGuards::kHasEnded;
    }
  }
  if (daemons > 0 && note_ != nullptr) {
    note_(absl::StrCat("host ", lost.spec.name, " is lost: it ", lost.gone,
                       scheduler_lost_ ? "; the scheduler ran there"
                                       : absl::StrCat("; its ", Counted(daemons, "daemon"),
                                                      " start on the other hosts")));
  }
}

// ------------------------------------------------------------------------------------ supervision

void HostCluster::PlanNextLife(Daemon* daemon) {
  if (!Supervises(*daemon) || scheduler_lost_) return;
  const absl::Time now = options_.clock->Now();
  const std::optional<absl::Duration> pause = daemon->policy.Died(daemon->started, now);
  if (!pause.has_value()) {
    daemon->why_not_again = daemon->policy.WhyNotAgain();
    gave_up_ = true;
    return;
  }
  daemon->start_at = now + *pause;
  // Its guard may not know yet that nobody listens to it.
  if (daemon->host_gone) {
    daemon->start_at =
        std::max(daemon->start_at, guards_.at(daemon->host).heard + HostGuards::kHasEnded);
  } else {
    note_(absl::StrCat(daemon->end, "; it is started again in ", absl::FormatDuration(*pause), " (",
                       daemon->log->path(), ")"));
  }
}

void HostCluster::TellOfDeaths() {
  guards_.Listen();
  if (client_ == nullptr || !daemons_[0].running) return;
  for (Daemon& daemon : daemons_) {
    if (daemon.told || daemon.running) continue;
    if (!daemon.failed && !Supervises(daemon)) {
      daemon.told = true;
      continue;
    }
    // As long as a host may only be cut off, its members may still live.
    if (daemon.host_gone &&
        options_.clock->Now() < guards_.at(daemon.host).heard + HostGuards::kHasEnded)
      continue;
    MemberEndedRequest request;
    request.set_role(daemon.role);
    request.set_rank(daemon.rank);
    request.set_pid(daemon.pid);
    request.set_process_space(guards_.at(daemon.host).process_space);
    request.set_reason(daemon.host_gone ? "its host is lost" : daemon.end);
    const absl::Status told = client_->MemberEnded(request);
    if (GotNoAnswer(told)) return;
    daemon.told = true;
    // NOT_FOUND: it had left the cluster, as it was told to.
    if (!told.ok() || daemon.failed) continue;
    if (IsProgram(daemon) && Supervises(daemon)) {
      // The user's code has ended the process, and would do so again.
      daemon.why_not_again = "before its job was over";
      gave_up_ = true;
    } else {
      PlanNextLife(&daemon);
    }
  }
}

absl::Status HostCluster::StartAgain(Daemon* daemon) {
  const absl::Time now = options_.clock->Now();
  if (now < daemon->start_at || (!daemon->told && daemon->role != ROLE_SCHEDULER))
    return absl::OkStatus();
  if (guards_.IsGone(daemon->host)) {
    std::vector<int> load(guards_.size(), 0);
    for (size_t i = 0; i < guards_.size(); ++i) {
      if (guards_.IsGone(i)) load[i] = -1;
    }
    for (const Daemon& other : daemons_) {
      if (other.running && load[other.host] >= 0) ++load[other.host];
    }
    const int next = HostForLost(load);
    if (next < 0) return HowItEnded(*daemon);
    daemon->host = static_cast<size_t>(next);
  }
  daemon->start_at = absl::InfiniteFuture();
  const absl::Status started = StartDaemon(daemon);
  if (absl::IsCancelled(started)) {
    daemon->start_at = now;
    return absl::OkStatus();
  }
  if (!started.ok()) {
    const std::optional<absl::Duration> pause = daemon->policy.Died(now, now);
    if (!pause.has_value()) return started;
    daemon->start_at = now + *pause;
    note_(absl::StrCat(started.message(), "; the next try is in ", absl::FormatDuration(*pause)));
    return absl::OkStatus();
  }
  note_(absl::StrCat(daemon->name, " runs again on ", options_.hosts[daemon->host].name, " (pid ",
                     daemon->pid, ")"));
  return absl::OkStatus();
}

absl::Status HostCluster::HowItEnded(const Daemon& daemon) const {
  const std::string again =
      daemon.why_not_again.empty()
          ? ""
          : absl::StrCat(", ", daemon.why_not_again, ", and is not started again");
  // Rank 0 of a program has printed on this terminal already.
  const bool shown = IsProgram(daemon) && daemon.rank == 0;
  if (daemon.host_gone || shown) return absl::InternalError(daemon.end + again);
  std::vector<std::string> tail(daemon.tail.begin(), daemon.tail.end());
  return absl::InternalError(
      absl::StrCat(daemon.end, again, "; the end of ", daemon.log->path(), ":\n",
                   tail.empty() ? "  (nothing)" : absl::StrJoin(tail, "\n")));
}

absl::Status HostCluster::CheckProcesses() {
  TellOfDeaths();
  absl::Status ended;
  for (Daemon& daemon : daemons_) {
    if (daemon.running || daemon.end.empty()) continue;
    const bool ended_itself = daemon.role == ROLE_SCHEDULER && !daemon.failed;
    const bool waits = daemon.start_at != absl::InfiniteFuture();
    const bool stays_dead =
        !Supervises(daemon) || ended_itself || !daemon.why_not_again.empty() || scheduler_lost_;
    absl::Status one;
    if (stays_dead) {
      one = HowItEnded(daemon);
    } else if (waits) {
      one = StartAgain(&daemon);
    }
    ended.Update(one);
  }
  return ended;
}

void HostCluster::SuperviseScheduler(std::function<void(const std::string&)> note) {
  if (note_ == nullptr) note_ = std::move(note);
}

void HostCluster::Supervise(std::function<void(const std::string&)> note) {
  SuperviseScheduler(std::move(note));
  supervises_members_ = true;
}

std::string HostCluster::Explain(const std::string& message) {
  TellOfDeaths();
  for (auto death = deaths_.rbegin(); death != deaths_.rend(); ++death) {
    for (const char* after : {" ", ")"}) {
      if (absl::StrContains(message, absl::StrCat("pid ", death->pid, after))) return death->cause;
    }
  }
  return "";
}

bool HostCluster::SchedulerIsLost() {
  guards_.Listen();
  if (daemons_.empty()) return true;
  const Daemon& scheduler = daemons_[0];
  return scheduler_lost_ || (!scheduler.running && scheduler.start_at == absl::InfiniteFuture());
}

std::vector<std::string> HostCluster::AwaitPrograms(
    const std::function<bool()>& interrupted, const std::function<void(const std::string&)>& note) {
  note_ = nullptr;  // the job needs no other starts
  const absl::Time told_at = options_.clock->Now() + kTellOfProgramsAfter;
  bool told = false;
  std::vector<const Daemon*> programs;
  for (const Daemon& daemon : daemons_) {
    // One that was started again may have come too late for the job, and one that has ended already
    // did so before the end of the job or left it with success.
    if (IsProgram(daemon) && daemon.lives == 1 && daemon.running) programs.push_back(&daemon);
  }
  const auto runs = [](const Daemon* daemon) { return daemon->running; };
  while (!interrupted()) {
    TellOfDeaths();
    const auto running = std::find_if(programs.begin(), programs.end(), runs);
    if (running == programs.end()) break;
    if (!told && options_.clock->Now() >= told_at) {
      told = true;
      note(absl::StrCat("the job is done; waits for the end of ", (*running)->name, " on ",
                        options_.hosts[(*running)->host].name, " (pid ", (*running)->pid,
                        "); Ctrl-C ends it"));
    }
    options_.clock->Sleep(absl::Milliseconds(10));
  }
  std::vector<std::string> failures;
  for (const Daemon* program : programs) {
    if (program->running || !program->failed) continue;
    failures.push_back(
        absl::StrCat(program->end, " after the job was done",
                     program->rank == 0 ? "" : absl::StrCat("; its log: ", program->log->path())));
  }
  return failures;
}

// --------------------------------------------------------------------------------------------- end

bool HostCluster::SomeRun() const {
  return std::any_of(daemons_.begin(), daemons_.end(), [](const Daemon& d) { return d.running; });
}

void HostCluster::Stop(absl::Duration grace) {
  if (stopped_) return;
  stopped_ = true;
  note_ = nullptr;  // no other starts
  guards_.ListenUntil(grace, [this] { return !SomeRun(); });
  client_ = nullptr;  // ends from here on are intended
  guards_.End();
  for (Daemon& daemon : daemons_) daemon.running = false;
}

}  // namespace sluice::cli
