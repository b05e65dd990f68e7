#include "scheduler/service/scheduler_server.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "common/admin/metric_series.h"
#include "common/admin/place_metrics.h"
#include "common/base/local_path.h"
#include "common/base/message_text.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/daemon/control_plane.h"
#include "common/daemon/endpoint_list.h"
#include "common/daemon/process_info.h"
#include "common/daemon/table_rows.h"
#include "common/meta_store/open_meta_store.h"
#include "common/security/connection_listener.h"
#include "common/security/job_passes.h"
#include "scheduler/service/job_metrics.h"
#include "scheduler/service/job_spec_builder.h"
#include "scheduler/service/standby.h"
#include "scheduler/service/status_bound.h"

namespace sluice {
namespace {

// etcd restarts, and elects a leader, in less.
constexpr absl::Duration kLeastCutOff = absl::Seconds(15);
constexpr absl::Duration kShortestLease = absl::Seconds(2);  // of etcd
// Bounds the status that the admin port shows: members may report more than an answer should hold.
constexpr size_t kMaxAdminStatusBytes = 16 << 20;

// Who leads, for the standbys of this scheduler.
std::string NameOf(const Identity& identity) {
  if (!identity.advertise.empty()) return identity.advertise;
  return absl::StrCat("pid ", getpid(), " on host ", HostName());
}

// Finds out whether nobody listens there. gRPC and the admin server bind the address later, when it
// is too late to leave an earlier scheduler alone.
absl::Status CheckCanListen(const std::string& bind) {
  ConnectionListener::Options options;
  options.users.address = bind;
  const absl::Status status = ConnectionListener::Listen(std::move(options)).status();
  if (status.ok()) return status;
  return absl::UnavailableError(absl::StrCat(
      status.message(), "; give another --bind or --admin_bind (port 0 picks a free one)"));
}

// The parent of the output folders of jobs that name none. Hosts that write to a store need not
// share a file system.
std::string DefaultOutput(const SecurityConfig& security) {
  for (const std::string& root : security.output_root()) {
    if (HasScheme(root)) return std::string(absl::StripSuffix(root, "/"));
  }
  std::error_code error;
  return (std::filesystem::current_path(error) / "output").string();
}

SchedulerCore::Options CoreOptions(const SchedulerServer::Options& options) {
  const ClusterConfig& cluster = options.identity.cluster;
  SchedulerCore::Options core;
  core.cluster = cluster.name();
  core.pservers.assign(cluster.pservers().begin(), cluster.pservers().end());
  const auto listed = static_cast<uint32_t>(cluster.pservers_size());
  core.pserver_num =
      options.server_num.value_or(options.identity.cluster_file.empty() ? 1 : listed);
  core.worker_num = options.worker_num > 0 ? options.worker_num : cluster.worker_num();
  core.lease = absl::Milliseconds(cluster.limits().lease_ms());
  core.heartbeat = absl::Milliseconds(cluster.limits().heartbeat_ms());
  core.wait = absl::Seconds(cluster.limits().wait_s());
  core.place = PlaceJob;
  core.clock = ProcessSpace();  // names the boot, whose monotonic clock it is
  return core;
}

// A random number for the ids of a scheduler's life. Ids of later terms are greater, so that no id
// occurs twice, and those of other clusters and of schedulers without a store differ by chance.
uint64_t FirstId(uint64_t term) {
  constexpr int kBits = 40;  // the upper half of a term's numbers is enough for all ids of a life
  return (term << kBits) + (RandomId() & ((uint64_t{1} << (kBits - 1)) - 1)) + 1;
}

std::string StateWord(JobState state) {
  std::string word = JobState_Name(state).substr(4);  // after "JOB_"
  for (char& c : word) c = static_cast<char>(c - 'A' + 'a');
  return word;
}

// The lines of a job below its first one: what `sluice status` also says.
std::string DetailsOf(const ClusterStatus& status, const JobStatus& job) {
  std::string text;
  const auto line = [&text](const auto&... parts) {
    absl::StrAppend(&text, "    ", parts..., "\n");
  };
  if (job.eta_s() > 0) line(absl::StrFormat("ETA %.0f s", job.eta_s()));
  for (auto e = job.epochs_log().rbegin(); e != job.epochs_log().rend(); ++e) {
    if (e->eval().examples() == 0) continue;
    const std::string auc = e->eval().has_auc() ? absl::StrFormat("%.5f", e->eval().auc()) : "-";
    line("epoch ", e->epoch(), ": AUC ", auc, ", log loss ",
         absl::StrFormat("%.5f", e->eval().log_loss()));
    break;
  }
  const CheckpointStatus& checkpoint = job.checkpoint();
  if (checkpoint.age_s() > 0) {
    line(absl::StrFormat("checkpoints: newest of step %d, %.0f s old, %d made, %d failed",
                         checkpoint.step(), checkpoint.age_s(), checkpoint.made(),
                         checkpoint.failed()),
         checkpoint.last_error().empty() ? "" : "; ", checkpoint.last_error());
  }
  if (!job.recovery().last().empty()) line("recovery: ", job.recovery().last());
  for (const WorkerProgress& w : job.workers()) {
    line(absl::StrFormat("worker %d: epoch %d step %d loss %.5f %.0f examples/s, ", w.rank(),
                         w.epoch(), w.step(), w.loss(), w.examples_per_second()),
         w.doing());
  }
  std::map<std::string, TableStatus> tables;
  for (const MemberStatus& member : status.members()) {
    for (const HostedJob& hosted : member.hosted()) {
      if (hosted.job_id() != job.job_id()) continue;
      for (const TableStatus& t : hosted.tables()) {
        AddShards(t, &tables[t.name()]);
      }
    }
  }
  for (const auto& [name, t] : tables) {
    line("table ", name, ": ", t.shards(), " shards, ", t.rows(), " rows, ", t.bytes(), " bytes");
    if (const std::string rows = DescribeRows(t); !rows.empty()) line("table ", name, ": ", rows);
  }
  for (const std::string& warning : job.warnings()) line("warning: ", warning);
  return text;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SchedulerServer>> SchedulerServer::Start(Options options) {
  std::unique_ptr<SchedulerServer> server(new SchedulerServer(std::move(options)));
  SLUICE_RETURN_IF_ERROR(server->Init());
  return server;
}

absl::Status SchedulerServer::Init() {
  SLUICE_ASSIGN_OR_RETURN(confined_, ConfinedEnv(options_.identity, options_.env));
  SchedulerLoop::Options loop;
  loop.core = CoreOptions(options_);
  const auto connections = ConnectionBounds::For(loop.core.worker_num, loop.core.pserver_num,
                                                 options_.identity.cluster.limits());
  const CallRoom room = CallRoom::For(loop.core.worker_num, loop.core.pserver_num);
  // First: a standby is asked for its state while it waits, perhaps for days.
  SLUICE_RETURN_IF_ERROR(StartAdmin());
  SLUICE_RETURN_IF_ERROR(TakeOver(&loop));
  StartLoop(std::move(loop));
  const Identity& identity = options_.identity;
  waiting_ = nullptr;  // it has the address
  SLUICE_ASSIGN_OR_RETURN(
      listener_, SchedulerListener::Start(identity.bind, identity.credentials, intake_.get(),
                                          options_.audit, connections, room));
  SLUICE_ASSIGN_OR_RETURN(
      Address address,
      ParseAddress(identity.advertise.empty() ? identity.bind : identity.advertise));
  if (address.port == 0) address.port = static_cast<uint16_t>(listener_->port());
  const std::string advertised = ToText(address);
  options_.log(absl::StrCat("scheduler at ", advertised, ", admin at ", admin_->url()));
  const RegisterRequest own = RegistrationOf(identity, admin_->address());
  MemberStatus self;
  self.set_role(ROLE_SCHEDULER);
  self.set_address(advertised);
  self.set_host(own.host());
  self.set_pid(own.pid());
  self.set_admin_address(own.admin_address());
  self.set_log_file(own.log_file());
  self.set_alive(true);
  loop_->NameSelf(std::move(self));
  return AppendEndpoint(options_.env, identity, advertised, admin_->address());
}

void SchedulerServer::StartLoop(SchedulerLoop::Options loop) {
  RequestIntake::Options intake;
  intake.clock = loop.clock = options_.clock;
  intake.env = loop.env = confined_ != nullptr ? confined_.get() : options_.env;
  intake.log = loop.log = options_.log;
  intake.pserver_num = loop.core.pserver_num;
  intake.default_output = DefaultOutput(options_.identity.cluster.security());
  intake.numbers_file = absl::StrCat(options_.identity.log_dir, "/job_numbers");
  intake.numbers_env = options_.env;
  loop.host = HostName();
  loop.staging = absl::StrCat(options_.identity.log_dir, "/output");
  loop.process_space = ProcessSpace();
  loop.process_has_ended = &ProcessHasEnded;
  loop.job_log = [this](const std::string& job_id, const std::string& line) {
    options_.log(absl::StrCat("job ", job_id, ": ", line));
  };
  loop.on_end = options_.on_end;
  loop.curves = &curves_;
  loop_ = std::make_unique<SchedulerLoop>(std::move(loop));
  intake.loop = loop_.get();
  intake_ = std::make_unique<RequestIntake>(intake);
  // Release: the admin server, which runs already, sees a loop that is complete.
  serving_.store(loop_.get(), std::memory_order_release);
}

absl::Status SchedulerServer::TakeOver(SchedulerLoop::Options* loop) {
  const Identity& identity = options_.identity;
  std::string spec = identity.cluster.state_store();
  if (identity.standby && !IsSharedMetaStore(spec)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--standby (SLUICE_STANDBY): only schedulers with their state in etcd can stand by for "
        "each other, and the state_store is ",
        spec.empty() ? "a folder, by default" : absl::StrCat("'", spec, "'"),
        "; write state_store: \"etcd:HOST:PORT/PREFIX\" in the cluster file, or start without "
        "--standby"));
  }
  if ((identity.etcd_credentials.tls() || identity.etcd_compact) && !IsSharedMetaStore(spec)) {
    return absl::InvalidArgumentError(
        absl::StrCat(identity.etcd_compact ? "--etcd_compact" : "--etcd_ca (SLUICE_ETCD_CA)",
                     ": the state_store is ",
                     spec.empty() ? "a folder, by default" : absl::StrCat("'", spec, "'"),
                     ", so there is no etcd; write state_store: \"etcd:HOST:PORT/PREFIX\" in the "
                     "cluster file, or "
                     "leave the flag out"));
  }
  loop->core.pass_key = NewPassKey();
  if (spec == "none") {
    loop->core.first_id = RandomId() | kUnorderedMemberId;
    return absl::OkStatus();
  }
  if (spec.empty()) spec = absl::StrCat("rocksdb:", identity.log_dir, "/state");
  const auto refuse = [&](const absl::Status& why) {
    return absl::Status(why.code(),
                        absl::StrCat("cannot use the state_store ", spec, ": ", why.message()));
  };
  const absl::Duration lease = std::max(loop->core.lease, kShortestLease);
  const EtcdAccess etcd = {identity.etcd_credentials, identity.cluster.security().insecure(),
                           identity.etcd_compact, options_.log};
  auto store = OpenMetaStore(spec, options_.env, options_.clock, {NameOf(identity), lease}, etcd);
  if (!store.ok()) return refuse(store.status());
  store_ = *std::move(store);
  if (options_.wrap_store_for_test) store_ = options_.wrap_store_for_test(std::move(store_));
  // Before the term is taken: a scheduler that cannot use the state must not end the one that does.
  if (const auto readable = ReadStore(); !readable.ok()) return refuse(readable.status());
  // For the same reason.
  SLUICE_RETURN_IF_ERROR(CheckCanListen(identity.bind));
  const absl::StatusOr<uint64_t> term = AwaitTerm(lease);
  if (absl::IsCancelled(term.status())) return term.status();
  if (!term.ok()) return refuse(term.status());
  term_ = *term;
  // Again: only now has the earlier scheduler written its last record.
  auto stored = ReadStore();
  if (!stored.ok()) return refuse(stored.status());
  options_.log(absl::StrCat("state in ", spec, ", term ", *term, ", ", stored->jobs.size(),
                            " jobs of an earlier scheduler"));
  loop->store = store_.get();
  loop->term = *term;
  loop->core.next = stored->next;
  // Members that continue with a job have passes of the earlier key.
  if (!stored->next.pass_key().empty()) loop->core.pass_key = stored->next.pass_key();
  loop->core.draining = stored->draining;
  loop->core.first_id = FirstId(*term);
  loop->core.first_version = FirstId(*term);
  loop->stored = *std::move(stored);
  loop->on_superseded = options_.on_superseded;
  // Without a standby: as long as members wait for a silent scheduler, and a new one needs to adopt
  // them. A standby takes over when the lease has run out. Then members that can reach both must
  // leave this one before the standby gives them up.
  if (IsSharedMetaStore(spec))
    loop->cut_off = identity.standby ? lease : std::max(3 * loop->core.lease, kLeastCutOff);
  return absl::OkStatus();
}

void SchedulerServer::AnswerWaiting(const std::string& why) {
  if (why.empty()) waiting_ = nullptr;
  const Identity& identity = options_.identity;
  const absl::StatusOr<Address> address = ParseAddress(identity.bind);
  // Nobody would find one at a port that the system has chosen.
  if (why.empty() || waiting_ != nullptr || !address.ok() || address->port == 0) return;
  const SchedulerCore::Options core = CoreOptions(options_);
  WaitingListener::Options listener;
  listener.bind = identity.bind;
  listener.credentials = identity.credentials;
  listener.audit = options_.audit;
  listener.connections =
      ConnectionBounds::For(core.worker_num, core.pserver_num, identity.cluster.limits());
  listener.room = CallRoom::For(core.worker_num, core.pserver_num);
  listener.cluster = identity.cluster.name();
  listener.why = why;
  absl::StatusOr<std::unique_ptr<WaitingListener>> started = WaitingListener::Start(listener);
  if (started.ok()) {
    waiting_ = *std::move(started);
  } else {
    options_.log(absl::StrCat("members cannot be told to wait: ", started.status().message()));
  }
}

absl::StatusOr<uint64_t> SchedulerServer::AwaitTerm(absl::Duration lease) {
  Standby::Options standby;
  standby.leadership = store_->leadership();
  if (!options_.identity.standby) standby.take = [this] { return store_->AcquireTerm(); };
  standby.name = NameOf(options_.identity);
  standby.answer = [this](const std::string& why) { AnswerWaiting(why); };
  standby.clock = options_.clock;
  standby.lease = lease;
  standby.pause = options_.pause;
  standby.say = [this](const std::string& why) {
    options_.log(why);
    MutexLock lock(&mutex_);
    waits_for_ = why;
  };
  const absl::StatusOr<uint64_t> term = Standby(std::move(standby)).AwaitTerm();
  if (!absl::IsOutOfRange(term.status())) return term;
  options_.log(std::string(term.status().message()));
  options_.on_end();
  return absl::CancelledError(term.status().message());
}

absl::StatusOr<StoredJobs> SchedulerServer::ReadStore() {
  SLUICE_ASSIGN_OR_RETURN(const auto entries, store_->Scan(""));
  SLUICE_ASSIGN_OR_RETURN(StoredJobs stored, ParseStoredJobs(entries));
  const std::string& theirs = stored.next.cluster();
  const std::string& ours = options_.identity.cluster.name();
  // A mistyped store would otherwise hand the jobs of one cluster to another.
  if (theirs.empty() || ours.empty() || theirs == ours) return stored;
  return absl::InvalidArgumentError(
      absl::StrCat("it holds the state of the cluster '", theirs, "', and this one is '", ours,
                   "'; give this cluster another --log_dir, which has the state unless state_store "
                   "names a place, or its own state_store, or its old `name`"));
}

absl::Status SchedulerServer::StartAdmin() {
  auto registry = std::make_shared<prometheus::Registry>();
  auto& members = GaugeFamily("sluice_scheduler_members", registry.get());
  auto& jobs = GaugeFamily("sluice_scheduler_jobs", registry.get());
  const auto of_jobs = std::make_shared<JobMetrics>(registry.get());
  const auto of_places = std::make_shared<PlaceMetrics>(registry.get(), "sluice_scheduler");
  AdminServer::Options admin;
  admin.bind = options_.identity.admin_bind;
  admin.tls = options_.identity.tls;
  admin.any_local_user = options_.identity.credentials.serves_any_local_user();
  admin.clock = options_.clock;
  admin.env = options_.env;
  admin.audit = options_.audit;
  admin.log = options_.log;
  admin.registry = registry;
  admin.version = SluiceVersion();
  admin.ready = [this] { return NotReady(); };
  admin.status_text = [this] { return StatusText(); };
  admin.status = [this] { return std::make_unique<ClusterStatus>(ShownStatus()); };
  Dashboard::Options dashboard;
  dashboard.status = [this] { return ShownStatus(); };
  dashboard.curves = &curves_;
  dashboard.env = options_.env;
  dashboard.clock = options_.clock;
  dashboard.log_dir = options_.identity.log_dir;
  dashboard.host = HostName();
  dashboard.version = SluiceVersion();
  dashboard_ = std::make_unique<Dashboard>(std::move(dashboard));
  admin.page = [this](const AdminServer::PageQuery& query) { return dashboard_->Answer(query); };
  admin.refresh_metrics = [this, &members, &jobs, of_jobs, of_places] {
    of_places->Set(options_.places);
    const ClusterStatus status = GetStatus();
    of_jobs->Update(status);
    std::map<std::string, double> by_role = {{"pserver", 0}, {"worker", 0}};
    for (const MemberStatus& member : status.members()) {
      by_role[RoleName(member.role())] += member.alive();
    }
    for (const auto& [role, n] : by_role) members.Add({{"role", role}}).Set(n);
    std::map<std::string, double> by_state;
    for (int state = JOB_QUEUED; state <= JOB_RECOVERING; ++state) {
      by_state[StateWord(static_cast<JobState>(state))] = 0;
    }
    for (const JobStatus& job : status.jobs()) ++by_state[StateWord(job.state())];
    for (const auto& [state, n] : by_state) jobs.Add({{"state", state}}).Set(n);
  };
  SLUICE_ASSIGN_OR_RETURN(admin_, AdminServer::Start(std::move(admin)));
  return absl::OkStatus();
}

absl::Status SchedulerServer::NotReady() {
  SchedulerLoop* const loop = serving_.load(std::memory_order_acquire);
  if (loop == nullptr) {
    MutexLock lock(&mutex_);
    return absl::UnavailableError(waits_for_);
  }
  const std::string missing = loop->NotReady();
  return missing.empty() ? absl::OkStatus()
                         : absl::UnavailableError(absl::StrCat("waits for ", missing));
}

ClusterStatus SchedulerServer::GetStatus() {
  SchedulerLoop* const loop = serving_.load(std::memory_order_acquire);
  if (loop != nullptr) return loop->GetStatus();
  ClusterStatus status;
  status.set_name(options_.identity.cluster.name());
  MemberStatus* const self = status.add_members();
  self->set_role(ROLE_SCHEDULER);
  self->set_host(HostName());
  self->set_alive(true);
  MutexLock lock(&mutex_);
  self->set_doing(waits_for_);
  return status;
}

ClusterStatus SchedulerServer::ShownStatus() {
  ClusterStatus status = GetStatus();
  BoundStatus(kMaxAdminStatusBytes, &status);
  return status;
}

std::string SchedulerServer::StatusText() {
  if (serving_.load(std::memory_order_acquire) == nullptr)
    return absl::StrCat(NotReady().message(), "\n");
  ClusterStatus status = ShownStatus();
  MakePrintable(&status);
  std::string text =
      absl::StrFormat("cluster %s, up %.0f s\n\nmembers\n", status.name(), status.uptime_s());
  const auto member = [&text](const MemberStatus& m) {
    absl::StrAppendFormat(
        &text, "  %s %d  %s  pid %d on %s  %s  admin %s  %.1f MiB  %s %s %s\n", RoleName(m.role()),
        m.rank(), m.address(), m.pid(), m.host(), m.alive() ? "alive" : "gone", m.admin_address(),
        static_cast<double>(m.memory_bytes()) / (1 << 20), m.device(), m.job_id(), m.doing());
  };
  if (status.has_scheduler()) member(status.scheduler());
  for (const MemberStatus& m : status.members()) member(m);
  text += "\njobs\n";
  for (const JobStatus& job : status.jobs()) {
    const bool figures = job.examples_per_second() > 0 || job.loss() > 0;
    absl::StrAppendFormat(
        &text, "  %s  %s  %s epoch %d/%d  step %d  %s  %s\n", job.job_id(), StateWord(job.state()),
        job.phase(), std::min(job.epoch(), job.epochs()), job.epochs(), job.global_step(),
        figures
            ? absl::StrFormat("%.0f examples/s  loss %.5f", job.examples_per_second(), job.loss())
            : "- examples/s  loss -",
        job.message().empty() ? job.waiting_for() : job.message());
    text += DetailsOf(status, job);
  }
  return text;
}

SchedulerServer::~SchedulerServer() {
  bool ended = false;
  if (listener_ != nullptr) {
    // Without a store nobody can continue with the jobs, so the cluster ends here.
    // It has no other scheduler to fear.
    if (store_ == nullptr) intake_->Shutdown([](const absl::Status&) {});
    // Keep listening until the cluster has ended: members learn of the shutdown from their calls.
    ended = loop_->ShuttingDown();
    if (ended) loop_->WaitEnd();
    listener_->Stop();
  }
  // Both servers call the loop, so it goes last.
  admin_.reset();
  listener_.reset();
  waiting_.reset();
  intake_.reset();
  loop_.reset();
  // Last of all. A standby, which would take over now, ends too.
  if (ended && store_ != nullptr && store_->leadership() != nullptr)
    store_->leadership()->EndCluster(term_).IgnoreError();
}

}  // namespace sluice
