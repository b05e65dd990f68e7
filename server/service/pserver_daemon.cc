#include "server/service/pserver_daemon.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/bounded_parse.h"
#include "common/base/status_macros.h"
#include "common/config/address.h"
#include "common/daemon/endpoint_list.h"
#include "common/daemon/process_info.h"
#include "common/shm_transport/shm_handshake.h"
#include "server/service/drain.h"

namespace sluice {
namespace {

// Short, because the scheduler answered a moment ago.
constexpr absl::Duration kRegisterWait = absl::Seconds(5);
constexpr char kSaveShardsMethod[] = "/sluice.Pserver/SaveShards";
// Unhandled bytes that clients may always have sent, however little memory there is: one whole
// message.
constexpr size_t kLeastReceivedBytes = size_t{64} << 20;
constexpr size_t kMaxParsedSaveBytes = 2 * GrpcStreamServer::kMaxUnaryBytes;

// Returns the log text of a checkpoint or export, which changes only with its state. An export that
// could not begin counts as a checkpoint.
std::string TextOf(const HostedCut& cut) {
  const bool is_export = cut.schedule_step_size() > 0;
  const std::string what = absl::StrCat(is_export ? "export " : "checkpoint ", cut.checkpoint(),
                                        " of step ", cut.step());
  switch (cut.state()) {
    case HostedCut::WRITTEN:
      return absl::StrFormat("%s is written: %.1f MiB in %.1f s, and at most %.1f MiB of memory",
                             what, cut.written_bytes() / 1048576.0, cut.seconds(),
                             cut.preimage_bytes() / 1048576.0);
    case HostedCut::FAILED:
      return absl::StrCat(what, " failed: ", cut.error());
    default:
      return absl::StrCat(what, " is being written");
  }
}

// Returns the log text of the copies at the follower; "" while the first ones are made.
std::string TextOf(const Replication& replication) {
  if (!replication.error().empty())
    return absl::StrCat("no copies at the follower: ", replication.error());
  return replication.complete() ? "the follower has copies of all shards" : "";
}

// Removes jobs without a key of passes, whose tables would serve everybody who reaches the port.
void DropJobsWithoutKey(google::protobuf::RepeatedPtrField<JobSpec>* jobs,
                        const std::function<void(const std::string&)>& log) {
  const auto open_to_all = [&log](const JobSpec& spec) {
    if (!spec.pass_key().empty()) return false;
    log(absl::StrCat("job ", spec.job_id(),
                     " is not opened: the scheduler has given it no key of passes; run the same "
                     "version of Sluice everywhere"));
    return true;
  };
  jobs->erase(std::remove_if(jobs->begin(), jobs->end(), open_to_all), jobs->end());
}

}  // namespace

absl::StatusOr<std::unique_ptr<PserverDaemon>> PserverDaemon::Start(Options options) {
  SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Env> confined,
                          ConfinedEnv(options.identity, options.env));
  std::unique_ptr<PserverDaemon> daemon(new PserverDaemon(std::move(options), std::move(confined)));
  SLUICE_RETURN_IF_ERROR(daemon->Init());
  return daemon;
}

absl::Status PserverDaemon::Init() {
  // The data port first: with --bind=HOST:0 it decides the port that everything below announces.
  SLUICE_RETURN_IF_ERROR(StartDataPort());
  SLUICE_RETURN_IF_ERROR(StartAdmin());
  SLUICE_RETURN_IF_ERROR(AppendEndpoint(options_.env, options_.identity,
                                        options_.identity.advertise, admin_->address()));
  options_.log(absl::StrCat("pserver ", options_.identity.rank, " serves at ",
                            options_.identity.advertise, ", admin at ", admin_->url()));
  scheduler_ = SchedulerClient::Create(options_.identity.scheduler, options_.clock,
                                       options_.identity.credentials);
  // Last, because both threads use all of the above.
  reconcile_thread_ = std::thread([this] { Reconcile(); });
  join_thread_ = std::thread([this] { Join(); });
  return absl::OkStatus();
}

PserverDaemon::~PserverDaemon() {
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  // The threads end before the session that they use. The ports end while the jobs that their
  // streams use still exist.
  if (join_thread_.joinable()) join_thread_.join();
  if (reconcile_thread_.joinable()) reconcile_thread_.join();
  pserver_.Stop();
  session_.reset();
  admin_.reset();
  if (shm_ != nullptr) shm_->Shutdown();
  if (data_port_ != nullptr) data_port_->Shutdown();
}

void PserverDaemon::Drain(absl::Duration wait) {
  {
    MutexLock lock(&mutex_);
    // The scheduler has never heard of this process, so no job has shards here.
    if (!joined_) return;
  }
  DrainOptions drain;
  drain.scheduler = scheduler_.get();
  drain.rank = options_.identity.rank;
  drain.key = [this] { return session_->key(); };
  drain.wait = wait;
  drain.clock = options_.clock;
  drain.hosts_jobs = [this] { return !pserver_.Report().empty(); };
  drain.log = options_.log;
  const absl::Status drained = DrainPserver(drain);
  options_.log(drained.ok() ? "no job has shards here"
                            : absl::StrCat("ends with its shards: ", drained.message()));
}

std::unique_ptr<Transport> PserverDaemon::ReplicaTransport(const Options& options) {
  const LimitsConfig& limits = options.identity.cluster.limits();
  GrpcTransport::Options transport;
  transport.method = kReplicaMethod;
  transport.credentials = options.identity.credentials;
  transport.threads = 1;
  if (limits.has_max_message_mib()) {
    transport.max_message_bytes = static_cast<size_t>(limits.max_message_mib()) << 20;
  }
  return std::make_unique<GrpcTransport>(transport);
}

JobResources PserverDaemon::ResourcesOf(const Options& options, Env* confined,
                                        Transport* replica_transport) {
  const LimitsConfig& limits = options.identity.cluster.limits();
  JobResources resources;
  resources.replica_transport = replica_transport;
  resources.audit = options.audit;
  resources.clock = options.clock;
  resources.env = confined != nullptr ? confined : options.env;
  resources.available_memory = options.available_memory;
  if (limits.has_max_message_mib()) {
    resources.max_message_bytes = uint64_t{limits.max_message_mib()} << 20;
  }
  return resources;
}

absl::Status PserverDaemon::StartDataPort() {
  Identity& identity = options_.identity;
  const LimitsConfig& limits = identity.cluster.limits();
  GrpcStreamServer::Options port;
  port.bind_address = identity.bind;
  port.credentials = identity.credentials;
  port.audit = options_.audit;
  port.log = options_.log;
  port.threads = options_.threads;
  port.connections = ConnectionBounds::For(
      identity.cluster.worker_num(), static_cast<size_t>(identity.cluster.pservers_size()), limits);
  if (limits.has_max_message_mib()) {
    port.max_message_bytes = static_cast<size_t>(limits.max_message_mib()) << 20;
  }
  StreamBounds bounds;
  // Queued messages may take half of the memory that is left now, received ones as much.
  // take_memory refuses earlier when rows have taken that memory since.
  const size_t half_of_memory = options_.available_memory() / 2;
  bounds.take_memory = pserver_.TakeMemory();
  bounds.max_total_queued_bytes =
      limits.has_max_queued_mib() ? size_t{limits.max_queued_mib()} << 20 : half_of_memory;
  if (limits.has_max_streams()) bounds.max_streams = static_cast<int>(limits.max_streams());
  // gRPC counts what it receives itself, and what handlers keep of it too.
  port.max_received_bytes = max_received_bytes_ = half_of_memory;
  bounds.max_total_incoming_bytes = half_of_memory / 2;
  RoomReports::Options reports;
  reports.audit = options_.audit;
  reports.log = options_.log;
  reports.on_cut = [this](const std::string&, const absl::Status&) { pserver_.CountCutStream(); };
  port.streams = std::make_shared<ServedStreams>(bounds, std::move(reports));
  data_port_ = std::make_unique<GrpcStreamServer>(
      port, [this](std::shared_ptr<Stream> stream, const PeerIdentity& peer) {
        return pserver_.NewHandler(std::move(stream), peer);
      });
  data_port_->RegisterStream(kReplicaMethod,
                             [this](std::shared_ptr<Stream> stream, const PeerIdentity& peer) {
                               return pserver_.NewReplicaHandler(std::move(stream), peer);
                             });
  data_port_->RegisterUnary(
      kSaveShardsMethod,
      [this](const PeerIdentity&, const std::string& request) { return SaveShards(request); });
  // An invitation must not wait until shards are saved.
  data_port_->RegisterUnary(
      kOpenSharedMemoryMethod,
      [this](const PeerIdentity& peer, const std::string& request) {
        return InviteToShm(peer, request);
      },
      GrpcStreamServer::UnaryThread::kOfStreams, kMaxInvitationRequestBytes);
  SLUICE_RETURN_IF_ERROR(StartShm(port));
  SLUICE_RETURN_IF_ERROR(data_port_->Start());
  if (identity.advertise.empty()) {
    SLUICE_ASSIGN_OR_RETURN(Address address, ParseAddress(identity.bind));
    address.port = static_cast<uint16_t>(data_port_->port());
    identity.advertise = ToText(address);
  }
  return absl::OkStatus();
}

absl::Status PserverDaemon::StartShm(const GrpcStreamServer::Options& port) {
  const TransportChoice transport = options_.identity.transport;
  if (transport == TransportChoice::kGrpc) return absl::OkStatus();
  ShmStreamServer::Options shm;
  shm.audit = port.audit;
  shm.threads = port.threads;
  shm.max_message_bytes = port.max_message_bytes;
  shm.streams = port.streams;
  auto server = std::make_unique<ShmStreamServer>(
      shm, [this](std::shared_ptr<Stream> stream, const PeerIdentity& peer) {
        return pserver_.NewHandler(std::move(stream), peer);
      });
  const absl::Status started = server->Start();
  if (started.ok()) {
    shm_ = std::move(server);
  } else if (transport == TransportChoice::kShm) {
    return absl::Status(started.code(), absl::StrCat("--transport=shm: ", started.message()));
  } else {
    // kAuto: workers on this host then use gRPC.
    options_.log(absl::StrCat("no streams through shared memory: ", started.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> PserverDaemon::InviteToShm(const PeerIdentity& peer,
                                                       const std::string& request) {
  if (shm_ != nullptr) return shm_->Invite(peer, request);
  return absl::FailedPreconditionError(options_.identity.transport == TransportChoice::kGrpc
                                           ? "the pserver runs with --transport=grpc"
                                           : "the pserver cannot share memory; its log says why");
}

StreamCounts PserverDaemon::CountStreams() const {
  StreamCounts counts;
  const int shm = shm_ != nullptr ? shm_->open_streams() : 0;
  // Relaxed: a count, which orders nothing.
  const int all = static_cast<int>(pserver_.counters().streams.load(std::memory_order_relaxed));
  counts.set_shm(shm);
  // The two figures are read at different moments.
  counts.set_grpc(std::max(0, all - shm));
  return counts;
}

absl::Status PserverDaemon::StartAdmin() {
  AdminServer::Options admin;
  admin.bind = options_.identity.admin_bind;
  admin.tls = options_.identity.tls;
  admin.any_local_user = options_.identity.credentials.serves_any_local_user();
  admin.clock = options_.clock;
  admin.env = options_.env;
  admin.audit = options_.audit;
  admin.log = options_.log;
  admin.ready = [this] {
    MutexLock lock(&mutex_);
    return joined_ ? absl::OkStatus()
                   : absl::UnavailableError(absl::StrCat("not registered with the scheduler at ",
                                                         options_.identity.scheduler));
  };
  admin.status_text = [this] { return Status()->DebugString(); };
  admin.status = [this] { return Status(); };
  admin.registry = metrics_.registry();
  admin.version = SluiceVersion();
  admin.refresh_metrics = [this] {
    metrics_.Update(pserver_.Report(), pserver_.counters(), CountStreams(), ResidentBytes(),
                    CpuSeconds());
    of_places_.Set(options_.places);
  };
  SLUICE_ASSIGN_OR_RETURN(admin_, AdminServer::Start(std::move(admin)));
  return absl::OkStatus();
}

bool PserverDaemon::stopping() {
  MutexLock lock(&mutex_);
  return stopping_;
}

void PserverDaemon::Join() {
  const Identity& identity = options_.identity;
  absl::Status status = WaitForScheduler(
      scheduler_.get(), options_.clock, absl::Seconds(identity.cluster.limits().wait_s()),
      [this] { return stopping(); }, options_.log);
  if (status.ok()) {
    MemberSession::Options session;
    session.scheduler = scheduler_.get();
    session.clock = options_.clock;
    session.self = RegistrationOf(identity, admin_->address());
    session.wait = kRegisterWait;
    session.room_wait = absl::Seconds(identity.cluster.limits().wait_s());
    session.stopping = [this] { return stopping(); };
    session.fill_report = [this](PollRequest* request) { FillReport(request); };
    session.report_lost = [this](const PollRequest& request) {
      pserver_.GiveBack(request.traces());
    };
    session.fill_holds = [this](auto* holds) { pserver_.FillHolds(options_.identity.rank, holds); };
    session.on_desired = [this](const PollReply& reply) {
      // Only noted here: this thread must go on polling, and opening a job may take minutes.
      MutexLock lock(&mutex_);
      desired_ = reply;
      reconcile_ = true;
      changed_.NotifyAll();
    };
    session.on_end = options_.on_end;
    session.log = options_.log;
    absl::StatusOr<std::unique_ptr<MemberSession>> started =
        MemberSession::Start(std::move(session));
    status = started.status();
    if (started.ok()) session_ = *std::move(started);
  }
  if (!status.ok()) {
    if (!stopping()) options_.on_end(status);
    return;
  }
  MutexLock lock(&mutex_);
  joined_ = true;
  changed_.NotifyAll();
}

void PserverDaemon::Reconcile() {
  for (;;) {
    PollReply desired;
    {
      MutexLock lock(&mutex_);
      while (!stopping_ && !(joined_ && reconcile_)) changed_.Wait(&mutex_);
      if (stopping_) return;
      // Only the newest orders count. Each reply holds all jobs, so nothing is missed.
      desired = desired_;
      reconcile_ = false;
    }
    DropJobsWithoutKey(desired.mutable_host(), options_.log);
    pserver_.Reconcile(options_.identity.advertise, desired.host());
    pserver_.SetCutOrders(desired.cuts());
    LogJobs();
    // Jobs wait for this report before they begin or continue.
    session_->ReportSoon();
  }
}

void PserverDaemon::ReconcileSoon() {
  MutexLock lock(&mutex_);
  reconcile_ = true;
  changed_.NotifyAll();
}

void PserverDaemon::LogJobs() {
  std::map<std::string, std::string> now, cuts, copies;
  for (const HostedJob& job : pserver_.Report()) {
    if (job.has_cut()) cuts[job.job_id()] = TextOf(job.cut());
    if (std::string text = TextOf(job.replication()); !text.empty()) {
      copies[job.job_id()] = std::move(text);
    }
    std::string& text = now[job.job_id()];
    if (!job.error().empty()) {
      text = job.error();
    } else if (job.generation() == 0) {
      text = "loads its tables from files";
    } else {
      text =
          absl::StrCat("generation ", job.generation(), " is open: ", job.tables_size(), " tables");
    }
  }
  std::map<std::string, std::string> news;
  for (const auto& [job_id, text] : now) {
    const auto it = logged_jobs_.find(job_id);
    if (it == logged_jobs_.end() || it->second != text) news[job_id] = text;
  }
  for (const auto& [job_id, text] : logged_jobs_) {
    if (now.count(job_id) == 0) news[job_id] = "its tables are dropped";
  }
  LogNews(news);
  logged_jobs_ = std::move(now);
  news.clear();
  for (const auto& [job_id, text] : cuts) {
    const auto it = logged_cuts_.find(job_id);
    if (it == logged_cuts_.end() || it->second != text) news[job_id] = text;
  }
  LogNews(news);
  logged_cuts_ = std::move(cuts);
  news.clear();
  for (const auto& [job_id, text] : copies) {
    const auto it = logged_copies_.find(job_id);
    if (it == logged_copies_.end() || it->second != text) news[job_id] = text;
  }
  LogNews(news);
  logged_copies_ = std::move(copies);
}

void PserverDaemon::LogNews(const std::map<std::string, std::string>& news) {
  for (const auto& [job_id, text] : news) options_.log(absl::StrCat("job ", job_id, ": ", text));
}

void PserverDaemon::BoundReceived() {
  // Received bytes reduce the available memory themselves, so they take at most a third of both
  // together.
  const size_t now = std::max<size_t>(kLeastReceivedBytes, options_.available_memory() / 2);
  data_port_->SetMaxReceivedBytes(std::min(max_received_bytes_, now));
}

void PserverDaemon::FillReport(PollRequest* request) {
  BoundReceived();
  pserver_.RecordStrayHellos();
  for (HostedJob& job : pserver_.Report()) *request->add_hosted() = std::move(job);
  // Only a poll that waits takes the spans, because no other poll overtakes it. Otherwise the
  // report that the end of a job waits for could arrive before them.
  if (request->wait_ms() > 0) pserver_.TakeTraces(request->mutable_traces());
  request->set_memory_bytes(ResidentBytes());
  request->set_cpu_seconds(CpuSeconds());
  *request->mutable_streams() = CountStreams();
}

std::unique_ptr<google::protobuf::Message> PserverDaemon::Status() {
  auto status = std::make_unique<MemberStatus>();
  status->set_role(ROLE_PSERVER);
  status->set_rank(options_.identity.rank);
  status->set_address(options_.identity.advertise);
  status->set_host(HostName());
  status->set_pid(getpid());
  status->set_alive(true);
  status->set_memory_bytes(ResidentBytes());
  status->set_cpu_seconds(CpuSeconds());
  *status->mutable_streams() = CountStreams();
  for (HostedJob& job : pserver_.Report()) *status->add_hosted() = std::move(job);
  return status;
}

absl::StatusOr<std::string> PserverDaemon::SaveShards(const std::string& request) {
  SaveShardsRequest save;
  // A short message can become large objects, so the bound is on what parsing makes of it.
  SLUICE_RETURN_IF_ERROR(ParseWithin(kMaxParsedSaveBytes, request, &save));
  // Training is over, and the job's result has the figures of the last report.
  ReconcileSoon();
  SLUICE_ASSIGN_OR_RETURN(std::vector<SavedFile> files, pserver_.SaveShards(save));
  SaveShardsReply reply;
  for (SavedFile& file : files) *reply.add_files() = std::move(file);
  return reply.SerializeAsString();
}

}  // namespace sluice
