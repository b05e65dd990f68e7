#include "worker/service/worker_server.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/daemon/endpoint_list.h"
#include "common/daemon/hot_row_use.h"
#include "common/daemon/process_info.h"
#include "model/net/cuda/cuda_device.h"
#include "worker/service/job_collective.h"

namespace sluice {
namespace {

// Short, because the scheduler answered a moment ago.
constexpr absl::Duration kRegisterWait = absl::Seconds(5);

std::string RunKey(const std::string& job_id, uint64_t incarnation) {
  return absl::StrCat(job_id, "/", incarnation);
}

// Adds one run, with the examples that it trained and its latest progress.
void AddRun(uint64_t examples, const WorkerProgress& run, WorkerTotals* totals) {
  totals->examples += examples;
  Add(run.hot_rows(), &totals->hot_rows);
}

size_t LargestMessageBytes(const Identity& identity) {
  return size_t{identity.cluster.limits().max_message_mib()} << 20;
}

GrpcTransport::Options DataPlaneGrpcOptions(const Identity& identity) {
  GrpcTransport::Options options;
  options.max_message_bytes = LargestMessageBytes(identity);
  options.credentials = identity.credentials;
  return options;
}

}  // namespace

DataPlane::DataPlane(const Identity& identity, std::function<void(const std::string&)> log)
    : grpc_(DataPlaneGrpcOptions(identity)) {
  if (identity.transport == TransportChoice::kGrpc) return;
  ShmTransport::Options options;
  // Shared memory begins with an invitation, which the pserver gives over gRPC.
  options.control = &grpc_;
  if (identity.transport == TransportChoice::kAuto) options.fallback = &grpc_;
  options.max_message_bytes = LargestMessageBytes(identity);
  options.on_choice = [log = std::move(log)](const std::string& address,
                                             const absl::Status& why_not) {
    log(why_not.ok() ? absl::StrCat("pserver ", address, ": through shared memory")
                     : absl::StrCat("pserver ", address,
                                    ": over gRPC, not through shared memory: ", why_not.message()));
  };
  shm_ = std::make_unique<ShmTransport>(std::move(options));
}

Transport* DataPlane::transport() {
  return shm_ != nullptr ? static_cast<Transport*>(shm_.get()) : &grpc_;
}

absl::StatusOr<std::unique_ptr<WorkerServer>> WorkerServer::Start(Options options) {
  std::unique_ptr<WorkerServer> server(new WorkerServer(std::move(options)));
  SLUICE_RETURN_IF_ERROR(server->Init());
  return server;
}

absl::Status WorkerServer::Init() {
  SLUICE_ASSIGN_OR_RETURN(confined_, ConfinedEnv(options_.identity, options_.env));
  const Identity& identity = options_.identity;
  metrics_ = std::make_unique<WorkerMetrics>(options_.device);
  AdminServer::Options admin;
  admin.bind = identity.admin_bind;
  admin.tls = identity.tls;
  admin.any_local_user = identity.credentials.serves_any_local_user();
  admin.clock = options_.clock;
  admin.env = options_.env;
  admin.audit = options_.audit;
  admin.log = options_.log;
  admin.ready = [this] {
    MutexLock lock(&mutex_);
    return started_ ? absl::OkStatus()
                    : absl::UnavailableError("not registered with the scheduler at " +
                                             options_.identity.scheduler);
  };
  admin.status_text = [this] { return Status()->DebugString(); };
  admin.status = [this] { return Status(); };
  admin.registry = metrics_->registry();
  admin.version = SluiceVersion();
  admin.refresh_metrics = [this] { RefreshMetrics(); };
  // Before the threads below: its address goes into the registration.
  SLUICE_ASSIGN_OR_RETURN(admin_, AdminServer::Start(std::move(admin)));
  SLUICE_RETURN_IF_ERROR(AppendEndpoint(options_.env, identity, "-", admin_->address()));

  scheduler_ = SchedulerClient::Create(identity.scheduler, options_.clock, identity.credentials);
  job_thread_ = std::thread([this] { RunJobs(); });
  join_thread_ = std::thread([this] { Join(); });
  return absl::OkStatus();
}

bool WorkerServer::Stopping() {
  MutexLock lock(&mutex_);
  return stopping_;
}

void WorkerServer::Join() {
  const Identity& identity = options_.identity;
  const absl::Status ready = WaitForScheduler(
      scheduler_.get(), options_.clock, absl::Seconds(identity.cluster.limits().wait_s()),
      [this] { return Stopping(); }, options_.log);
  if (!ready.ok()) {
    if (!Stopping()) options_.on_end(ready);
    return;
  }
  MemberSession::Options session;
  session.scheduler = scheduler_.get();
  session.clock = options_.clock;
  session.self = RegistrationOf(identity, admin_->address());
  session.self.set_device(NameOf(options_.device));
  session.self.set_program(options_.program);
  session.wait = kRegisterWait;
  session.room_wait = absl::Seconds(identity.cluster.limits().wait_s());
  session.stopping = [this] { return Stopping(); };
  session.fill_report = [this](PollRequest* request) { FillReport(request); };
  session.report_lost = [this](const PollRequest& request) { ReportLost(request); };
  session.fill_holds = [this](auto* holds) { FillHolds(holds); };
  session.on_desired = [this](const PollReply& reply) { OnDesired(reply); };
  session.on_end = options_.on_end;
  session.log = options_.log;
  absl::StatusOr<std::unique_ptr<MemberSession>> started = MemberSession::Start(std::move(session));
  if (!started.ok()) {
    if (!Stopping()) options_.on_end(started.status());
    return;
  }
  session_ = *std::move(started);
  MutexLock lock(&mutex_);
  started_ = true;
  changed_.NotifyAll();
}

WorkerServer::~WorkerServer() {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    runner = runner_;
    changed_.NotifyAll();
  }
  // Outside the lock, because Cancel calls out to the runner and its client.
  if (runner) runner->Cancel();
  if (options_.stop_reads) options_.stop_reads();
  // The join thread writes session_, so it ends before session_ is destroyed.
  if (join_thread_.joinable()) join_thread_.join();
  if (job_thread_.joinable()) job_thread_.join();
  session_.reset();
  admin_.reset();
}

void WorkerServer::FailJob(absl::Status why) {
  std::shared_ptr<JobRunner> runner;
  std::string job_id;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
    if (started_) job_id = job_;
  }
  // Outside the lock, like all calls to the runner.
  if ((runner && runner->Fail(why)) || job_id.empty()) return;
  const absl::Status told = scheduler_->FailJob(FailureOfProcess(job_id, session_->key(), why));
  if (!told.ok())
    options_.log(absl::StrCat("job ", job_id, ": could not report the failure: ", told.ToString()));
}

absl::Status WorkerServer::CancelJob() {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
  }
  // Outside the lock, like all calls to the runner.
  return runner ? runner->CancelJob() : absl::OkStatus();
}

void WorkerServer::OnDesired(const PollReply& reply) {
  std::shared_ptr<JobRunner> cancel, keep;
  {
    MutexLock lock(&mutex_);
    assigned_ = reply.has_assignment();
    if (assigned_) assignment_ = reply.assignment();
    const std::string wanted =
        assigned_ ? RunKey(assignment_.job().job_id(), assignment_.incarnation()) : std::string();
    if (assigned_ && wanted != finished_) job_ = assignment_.job().job_id();
    if (runner_)
      (RunKey(runner_->job_id(), runner_->incarnation()) == wanted ? keep : cancel) = runner_;
    changed_.NotifyAll();
  }
  // Outside the lock, like all calls to the runner here: the runner calls out itself.
  if (cancel) cancel->Cancel();
  // The run continues; only the checkpoint that is wanted and the route may be others.
  if (keep) {
    keep->SetCheckpoint(reply.assignment().checkpoint());
    if (reply.assignment().has_early_end()) keep->SetEarlyEnd(reply.assignment().early_end());
    keep->NoteGeneration(reply.assignment().job().route().generation(), reply.assignment().group());
  }
}

void WorkerServer::FillReport(PollRequest* request) {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
  }
  // Also when idle, so that a leak shows.
  request->set_memory_bytes(ResidentBytes());
  request->set_cpu_seconds(CpuSeconds());
  if (!runner) return;
  *request->mutable_progress() = runner->TakeProgress();
  runner->AddCut(request);
  runner->AddGroup(request);
  // Spans go only with the poller's reports, which it sends one after another. The poller could
  // overtake any other report, and the job's end could then arrive before the spans.
  if (runner->trace() != nullptr && request->wait_ms() > 0)
    runner->trace()->Take(request->mutable_traces());
}

void WorkerServer::FillHolds(google::protobuf::RepeatedPtrField<HeldJob>* holds) {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
  }
  HeldJob held;
  if (runner && runner->Holds(&held)) *holds->Add() = std::move(held);
}

void WorkerServer::ReportLost(const PollRequest& request) {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
  }
  if (!runner || runner->job_id() != request.progress().job_id()) return;
  runner->GiveBack(request.progress());
  for (const TraceBatch& batch : request.traces()) runner->trace()->GiveBack(batch);
}

void WorkerServer::RunJobs() {
  for (;;) {
    std::shared_ptr<JobRunner> runner;
    WorkerAssignment assignment;
    {
      MutexLock lock(&mutex_);
      auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ ||
               (started_ && assigned_ &&
                // The scheduler repeats an assignment until it has heard of its end. A run that has
                // ended does not start again.
                finished_ != RunKey(assignment_.job().job_id(), assignment_.incarnation()));
      };
      while (!ready()) changed_.Wait(&mutex_);
      if (stopping_) return;
      JobRunner::Options run;
      run.member.assignment = assignment = assignment_;
      run.models = options_.models;
      run.own_data = options_.own_data;
      run.member.key = [this] { return session_->key(); };
      run.host = HostName();
      run.threads = options_.threads;
      run.device = options_.device;
      run.slot = static_cast<int>(options_.identity.rank);
      if (assignment_.job().config().train().threads() > 0)
        run.threads = assignment_.job().config().train().threads();
      run.member.scheduler = scheduler_.get();
      run.scheduler_patience = session_->lost_after();
      // The scheduler notices a loss within a lease, and lost_after() is several leases.
      run.attempt_patience = session_->lost_after() / 2;
      // A lease, or 5 s: by then a restarted scheduler has heard from its members.
      run.scheduler_silent = [this] { return session_->silent() >= session_->lost_after() / 4; };
      run.member.transport = options_.transport;
      run.make_collective =
          [this](const JobConfig& config) -> absl::StatusOr<std::unique_ptr<Collective>> {
        SLUICE_ASSIGN_OR_RETURN(std::unique_ptr<Collective> made,
                                MakeJobCollective(config, options_.identity, options_.device));
        return options_.wrap_collective ? options_.wrap_collective(std::move(made))
                                        : std::move(made);
      };
      run.env = confined_ != nullptr ? confined_.get() : options_.env;
      run.line_counts = absl::StrCat(options_.identity.log_dir, "/line_counts");
      run.log_env = options_.env;
      run.member.max_message_bytes = LargestMessageBytes(options_.identity);
      run.member.clock = options_.clock;
      run.report_soon = [this] { session_->ReportSoon(); };
      run.log = [this, job_id = assignment_.job().job_id(), rank = assignment_.rank()](
                    const std::string& line) { LogJob(job_id, rank, line); };
      runner_ = runner = std::make_shared<JobRunner>(std::move(run));
    }
    const std::string job = absl::StrCat("job ", runner->job_id(), ": ");
    LogJob(runner->job_id(), runner->rank(), absl::StrCat(job, "starts as rank ", runner->rank()));
    if (options_.on_job_start) options_.on_job_start(assignment);
    const absl::Status status = runner->Run();
    LogJob(runner->job_id(), runner->rank(),
           absl::StrCat(job, status.ok() ? "ended" : status.ToString()));
    const WorkerProgress last = runner->Progress();
    {
      MutexLock lock(&mutex_);
      finished_ = RunKey(runner->job_id(), runner->incarnation());
      if (status.ok()) job_.clear();
      // Under one lock with the reset: the totals never lack the run, or have it twice.
      AddRun(runner->Examples(), last, &ended_);
      runner_.reset();
    }
    if (options_.on_job_end)
      options_.on_job_end(assignment, status.ok() ? runner->job_end() : status);
    // A failed job may have left the device unusable, and every later job would then fail as well.
    if (status.ok() || options_.device.kind != ComputeDevice::kCuda) continue;
    const absl::Status answers = CheckCudaDevice(options_.device.ordinal);
    if (answers.ok()) continue;
    // Without its device this worker would fail every job, so the process ends.
    return options_.on_end(absl::InternalError(absl::StrCat(
        NameOf(options_.device), " no longer answers this process: ", answers.message(),
        "; the worker ends: start it again")));
  }
}

void WorkerServer::LogJob(const std::string& job_id, uint32_t rank, const std::string& line) {
  // `sluice logs JOB_ID` finds the lines of a job by its id.
  const bool named = absl::StartsWith(line, absl::StrCat("job ", job_id));
  options_.log(named ? line : absl::StrCat("job ", job_id, " rank ", rank, ": ", line));
}

std::optional<uint64_t> WorkerServer::Acknowledged() {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
  }
  if (!runner) return std::nullopt;
  return runner->Acknowledged();
}

std::unique_ptr<google::protobuf::Message> WorkerServer::Status() {
  std::shared_ptr<JobRunner> runner;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
  }
  auto progress = std::make_unique<WorkerProgress>();
  if (runner) {
    *progress = runner->Progress();
  } else {
    progress->set_doing("idle");
  }
  return progress;
}

void WorkerServer::RefreshMetrics() {
  std::shared_ptr<JobRunner> runner;
  WorkerTotals totals;
  {
    MutexLock lock(&mutex_);
    runner = runner_;
    totals = ended_;
  }
  const WorkerProgress progress = runner ? runner->Progress() : WorkerProgress();
  if (runner) AddRun(runner->Examples(), progress, &totals);
  totals.cpu_seconds = CpuSeconds();
  metrics_->Set(progress, totals);
  metrics_->SetPlaces(options_.places);
}

}  // namespace sluice
