#include "scheduler/scheduler_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "scheduler/job_folder.h"
#include "scheduler/job_records.h"
#include "scheduler/job_spec_builder.h"
#include "scheduler/request_text.h"
#include "scheduler/starting_point.h"

namespace sluice {
namespace {

constexpr uint32_t kLongestWaitMs = 30000;
constexpr std::chrono::milliseconds kTick(100);
constexpr absl::Duration kNameMissingEvery = absl::Seconds(3);

std::string LineOf(const OutputAction& action) {
  if (action.kind == OutputAction::kStarted) {
    return absl::StrCat("starts on ", action.config.worker_num(),
                        action.config.worker_num() == 1 ? " worker" : " workers", ", writes to ",
                        action.config.output_dir());
  }
  if (action.kind == OutputAction::kDiscard && !action.why.empty()) {
    return absl::StrCat("checkpoint ", action.number, " of step ", action.manifest.global_step(),
                        " is given up: ", action.why);
  }
  if (action.kind != OutputAction::kEnded) return "";
  const JobResult& result = action.result;
  return absl::StrCat(result.status(), result.message().empty() ? "" : ": ", result.message());
}

// It replaces or removes files in a folder that a newer scheduler may also write to.
bool ChangesSharedFiles(const OutputAction& action) {
  return action.kind == OutputAction::kCheckpoint || action.kind == OutputAction::kDiscard ||
         action.kind == OutputAction::kEnded;
}

absl::Status TakenOver() { return absl::UnavailableError("a newer scheduler has taken over"); }

}  // namespace

SchedulerLoop::SchedulerLoop(Options options)
    : options_(std::move(options)),
      caller_log_(options_.clock, options_.log),
      core_(options_.core, options_.clock->Now()) {
  named_at_ = options_.clock->Now();
  JobOutput::Options output;
  output.env = options_.env;
  output.host = options_.host;
  output.on_begun = [this](const std::string& job_id) {
    Run([&](SchedulerCore& core, absl::Time now) { core.OutputBegun(job_id, now); });
  };
  output.on_failed = [this](const std::string& job_id, absl::Status status) {
    options_.job_log(job_id, std::string(status.message()));
    Run([&](SchedulerCore& core, absl::Time now) { core.OutputFailed(job_id, status, now); });
  };
  output.on_warning = [this](const std::string& job_id, const std::string& warning) {
    options_.job_log(job_id, warning);
    Run([&](SchedulerCore& core, absl::Time) { core.Warn(job_id, warning); });
  };
  output.on_checkpoint = [this](const std::string& job_id, uint64_t number, absl::Status status,
                                const std::string& warning) {
    if (status.ok()) options_.job_log(job_id, absl::StrCat("checkpoint ", number, " is complete"));
    if (!warning.empty()) options_.job_log(job_id, warning);
    Run([&](SchedulerCore& core, absl::Time now) {
      core.CheckpointWritten(job_id, number, status, warning, now);
    });
  };
  output.on_ended = [this](const std::string& job_id, absl::Status status) {
    if (!status.ok()) options_.job_log(job_id, std::string(status.message()));
    Run([&](SchedulerCore& core, absl::Time) { core.OutputEnded(job_id, status); });
  };
  output_ = std::make_unique<JobOutput>(std::move(output));
  if (options_.store != nullptr) {
    StateKeeper::Options keeper;
    keeper.store = options_.store;
    keeper.term = options_.term;
    keeper.clock = options_.clock;
    keeper.log = options_.log;
    keeper.on_superseded = options_.on_superseded;
    keeper.cut_off = absl::ToChronoMilliseconds(options_.cut_off);
    keeper_ = std::make_unique<StateKeeper>(std::move(keeper));
  }
  RestoreJobs();
  timer_ = std::thread([this] { TimerLoop(); });
}

SchedulerLoop::~SchedulerLoop() {
  StopWaiting();
  {
    MutexLock lock(&mutex_);
    stopping_ = true;
    changed_.NotifyAll();
  }
  timer_.join();
  // Everything that waits for its record reaches the output before the output stops. Its last
  // callbacks still call Run, and the records that these change are committed at the very end.
  if (keeper_ != nullptr) keeper_->Commit({}).IgnoreError();
  output_->Stop();
  keeper_ = nullptr;
}

void SchedulerLoop::RestoreJobs() {
  // From now on the store says whose it is.
  NextRecord next = options_.stored.next;
  next.set_cluster(options_.core.cluster);
  next.set_pass_key(options_.core.pass_key);
  if (keeper_ != nullptr) keeper_->Add({WriteOf(next)}, nullptr);
  std::map<std::string, StoredRun> runs = options_.stored.runs;
  for (const JobRecord& stored : options_.stored.jobs) {
    JobRecord record = stored;
    const bool over = record.outcome() != JOB_STATE_UNSPECIFIED;
    std::vector<std::string> warnings;
    absl::StatusOr<std::unique_ptr<const ResumePoint>> point = nullptr;
    std::optional<RunHandover> run;
    // Reads files; nobody else uses the loop yet. The members wait meanwhile, so that whole
    // checkpoints are read only for a job that goes back to one and may pass over damaged ones.
    if (!over) {
      run = FindHandover(record, &runs);
      const auto find = [&](bool verify) {
        point = FindRestartPoint(record, verify, options_.env, options_.clock, &warnings);
      };
      find(/*verify=*/!run.has_value());
      if (!point.ok() && run.has_value() && record.allow_older()) find(/*verify=*/true);
    }
    for (const std::string& warning : warnings) record.add_warnings(warning);
    options_.job_log(
        record.job_id(),
        absl::StrCat("taken over from an earlier scheduler: ",
                     over                ? "it is over, and its result is written"
                     : run.has_value()   ? "it continues when its members register again"
                     : !point.ok()       ? std::string(point.status().message())
                     : *point != nullptr ? absl::StrCat("continues from ", (*point)->dir)
                     : record.begun()    ? "begins again"
                                         : "queued"));
    Run([&](SchedulerCore& core, absl::Time now) {
      core.RestoreJob(record, std::move(point), std::move(run), now);
    });
  }
  for (const auto& left : runs)
    Run([&](SchedulerCore& core, absl::Time) { core.ForgetRun(left.second); });
}

std::optional<RunHandover> SchedulerLoop::FindHandover(const JobRecord& record,
                                                       std::map<std::string, StoredRun>* runs) {
  auto stored = runs->extract(record.job_id());
  RunHandover handover;
  if (!stored.empty()) handover.run = std::move(stored.mapped());
  absl::Status adoptable;
  if (handover.run.record.phase() == 0) {
    adoptable = absl::NotFoundError(
        "there is no complete record of it, because it lacked a member, had not begun yet, or "
        "could not be recorded");
  } else {
    handover.began_at = BeginningOf(handover.run);
  }
  const Restore& restore = handover.run.record.spec().restore();
  const bool resumed = restore.kind() == Restore::RESUME && !restore.directory().empty();
  // A record that was too large for the store is not there.
  if (adoptable.ok() && resumed && handover.began_at == nullptr) {
    auto began_at =
        ReadRestartPoint(restore.directory(), record.config(), options_.env, options_.clock);
    adoptable = began_at.status();
    if (began_at.ok()) handover.began_at = *std::move(began_at);
  }
  if (adoptable.ok()) return handover;
  if (record.begun()) {
    options_.job_log(
        record.job_id(),
        absl::StrCat("the run of the earlier scheduler cannot continue: ", adoptable.message()));
  }
  Run([&](SchedulerCore& core, absl::Time) { core.ForgetRun(handover.run); });
  return std::nullopt;
}

void SchedulerLoop::Run(const Event& event) {
  std::vector<Answer> answers;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    event(core_, now);
    answers = Settle(now, /*all=*/stop_waiting_);
  }
  for (const Answer& answer : answers) answer();
}

bool SchedulerLoop::RunOrWait(const WaitingEvent& event, WaitingCalls::Call call) {
  std::vector<Answer> answers;
  std::string line;
  uint32_t wait_ms = 0;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    event(core_, now, &wait_ms);
    if (wait_ms > 0) {
      call.deadline = now + absl::Milliseconds(std::min(wait_ms, kLongestWaitMs));
      const std::string caller = call.caller;
      const uint64_t before = waiting_.crowded_out();
      waiting_.Add(std::move(call));
      if (waiting_.crowded_out() > before) line = CrowdedOut(caller);
    }
    answers = Settle(now, /*all=*/stop_waiting_);
  }
  if (!line.empty()) options_.log(line);
  for (const Answer& answer : answers) answer();
  return wait_ms > 0;
}

std::string SchedulerLoop::CrowdedOut(const std::string& caller) const {
  // A line each time that their number has doubled.
  const uint64_t n = waiting_.crowded_out();
  if ((n & (n - 1)) != 0) return "";
  return absl::StrCat("calls of ", caller,
                      " were answered early, because it has too many that wait: ", n,
                      " calls of all callers so far");
}

std::vector<SchedulerLoop::Answer> SchedulerLoop::Settle(absl::Time now, bool all) {
  std::vector<Answer> answers = waiting_.Settle(&core_, now, all);
  std::vector<OutputAction> actions = core_.TakeActions();
  // The core's clock is monotonic; files need the time of day.
  const absl::Time wall = options_.clock->WallNow();
  for (OutputAction& action : actions) {
    action.time = wall - (now - action.time);
    action.trace.received = wall - (now - action.trace.received);
  }
  const auto log = [&](const std::string& job_id, const std::string& line) {
    if (line.empty()) return;
    answers.push_back([this, job_id, line] { options_.job_log(job_id, line); });
  };
  for (const JobLine& line : core_.TakeLines()) log(line.job_id, line.text);
  for (const OutputAction& action : actions) log(action.job_id, LineOf(action));
  // Called under the lock, so that outputs are written in the order of the decisions.
  std::vector<MetaStore::Write> records = TakeRecords();
  if (keeper_ == nullptr) {
    output_->Add(std::move(actions));
  } else if (!records.empty() || !actions.empty()) {
    const bool confirm = std::any_of(actions.begin(), actions.end(), ChangesSharedFiles);
    StateKeeper::Done write = [this,
                               actions = std::move(actions)](const absl::Status& kept) mutable {
      // The newer scheduler writes the files of its jobs.
      if (!absl::IsAborted(kept)) output_->Add(std::move(actions));
    };
    keeper_->Add(std::move(records), std::move(write), confirm);
  }
  return answers;
}

std::vector<MetaStore::Write> SchedulerLoop::TakeRecords() {
  std::vector<MetaStore::Write> kept;
  // Repeated, since a warning changes the record of its job.
  for (;;) {
    std::vector<MetaStore::Write> records = core_.TakeRecords();
    if (records.empty()) return kept;
    for (MetaStore::Write& record : records) {
      const size_t size = record.key.size() + (record.value ? record.value->size() : 0);
      if (keeper_ == nullptr || size <= MetaStore::kMaxCommitBytes) {
        kept.push_back(std::move(record));
        continue;
      }
      const RecordOwner owner = OwnerOf(record.key);
      core_.Warn(owner.job_id,
                 absl::StrCat("the scheduler cannot keep all that it knows of the job: more than ",
                              MetaStore::kMaxCommitBytes, " bytes; if it dies, the job ",
                              owner.of_job ? "continues from what was kept before"
                                           : "goes back to its newest checkpoint"));
      // Without the record of the job itself, the next scheduler would not know the job at all.
      if (!owner.of_job) kept.push_back({std::move(record.key), std::nullopt});
    }
  }
}

template <typename Reply>
void SchedulerLoop::AnswerWhenKept(absl::StatusOr<Reply> reply, const Done<Reply>& done,
                                   bool confirm) {
  if (keeper_ == nullptr) return done(std::move(reply));
  StateKeeper::Done answer = [reply = std::move(reply), done](const absl::Status& kept) mutable {
    // The newer scheduler does not know of this answer.
    if (absl::IsAborted(kept)) reply = TakenOver();
    done(std::move(reply));
  };
  // Training does not wait for a store that is known to be out of reach. If this scheduler dies
  // before it is back, the next one notices what its records lack.
  keeper_->AddAnswer(std::move(answer), confirm);
}

absl::Status SchedulerLoop::AwaitKept() {
  // A store that cannot be written does not undo a decision.
  const bool over = keeper_ != nullptr && absl::IsAborted(keeper_->Commit({}));
  return over ? TakenOver() : absl::OkStatus();
}

absl::StatusOr<RegisterReply> SchedulerLoop::Register(const RegisterRequest& request, bool believed,
                                                      RegisterNotes* notes) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  absl::StatusOr<RegisterReply> reply;
  const auto ask = [&](SchedulerCore& core, absl::Time now) {
    reply = core.Register(*taken, now, believed, notes);
  };
  Run(ask);
  if (reply.ok() && reply->has_incumbent() && FreePlaceOf(*taken, reply->incumbent())) Run(ask);
  LogRegistration(*taken, reply);
  return reply;
}

bool SchedulerLoop::FreePlaceOf(const RegisterRequest& newcomer, const Incumbent& incumbent) {
  if (options_.process_space.empty() || incumbent.process_space() != options_.process_space ||
      !options_.process_has_ended(incumbent.pid())) {
    return false;
  }
  MemberEndedRequest ended;
  ended.set_role(newcomer.role());
  ended.set_rank(newcomer.rank());
  ended.set_pid(incumbent.pid());
  ended.set_process_space(incumbent.process_space());
  ended.set_reason("its process has ended");
  return MemberEnded(ended).ok();
}

void SchedulerLoop::LogRegistration(const RegisterRequest& request,
                                    const absl::StatusOr<RegisterReply>& reply) {
  std::string what;
  if (!reply.ok()) {
    what = std::string(reply.status().message());
  } else if (reply->member_id() != 0) {
    what = absl::StrCat("registered as member ", reply->member_id());
  } else {
    // A refused process asks again and again; log only its first refusal.
    if (refused_life_.exchange(request.life(), std::memory_order_relaxed) == request.life()) return;
    what = absl::StrCat("refused while pid ", reply->incumbent().pid(), " on host ",
                        reply->incumbent().host(), " has this rank");
  }
  caller_log_.Say(absl::StrCat(RoleName(request.role()), " ", request.rank(), " (pid ",
                               request.pid(), " on host ", request.host(), "): ", what));
}

void SchedulerLoop::Poll(const PollRequest* asked, Done<PollReply> done,
                         const std::string& caller) {
  const auto taken = TakeIn(*asked);
  if (!taken.ok()) return done(taken.status());
  const std::shared_ptr<const PollRequest> request = *taken;
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.key = WaitKey::Desired(request->member_id());
  waiting.ready = [request](SchedulerCore& core) {
    const absl::StatusOr<uint64_t> version = core.DesiredVersion(request->member_id());
    return !version.ok() || *version != request->seen_version();
  };
  waiting.finish = [request, done](SchedulerCore& core, absl::Time) -> Answer {
    return [done, answer = core.Desired(request->member_id(), request->seen_version())]() mutable {
      done(std::move(answer));
    };
  };
  absl::StatusOr<PollReply> reply;
  const auto poll = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = core.Poll(*request, now);
    const bool nothing_new = reply.ok() && reply->version() == request->seen_version();
    *wait_ms = nothing_new ? request->wait_ms() : 0;
  };
  if (!RunOrWait(poll, std::move(waiting))) done(std::move(reply));
}

absl::Status SchedulerLoop::Leave(const LeaveRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  absl::Status status;
  Run([&](SchedulerCore& core, absl::Time now) { status = core.Leave(*taken, now); });
  return status;
}

std::optional<std::pair<Role, uint32_t>> SchedulerLoop::RoleAndRankOf(uint64_t member_id) {
  MutexLock lock(&mutex_);
  return core_.RoleAndRankOf(member_id);
}

absl::Status SchedulerLoop::MemberEnded(const MemberEndedRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  const std::string who =
      absl::StrCat(RoleName(taken->role()), " ", taken->rank(), " (pid ", taken->pid(), ")");
  bool ended = false;
  Run([&](SchedulerCore& core, absl::Time now) { ended = core.MemberEnded(*taken, now); });
  if (!ended) return absl::NotFoundError(absl::StrCat(who, " is no living member"));
  caller_log_.Say(absl::StrCat(who, ": ", taken->reason()));
  return absl::OkStatus();
}

void SchedulerLoop::ConnectionBroke(uint64_t member_id, const std::string& secret) {
  Run([&](SchedulerCore& core, absl::Time now) { core.ConnectionBroke(member_id, secret, now); });
}

void SchedulerLoop::LookAfterSilentMembers() {
  std::vector<MemberEndedRequest> silent;
  {
    MutexLock lock(&mutex_);
    silent = core_.SilentMembers(options_.process_space, options_.clock->Now());
  }
  for (MemberEndedRequest& member : silent) {
    if (!options_.process_has_ended(member.pid())) continue;
    member.set_reason("its process has ended");
    MemberEnded(member).IgnoreError();  // it may have reported, or left, meanwhile
  }
}

void SchedulerLoop::NextPhase(const NextPhaseRequest* asked, Done<NextPhaseReply> done,
                              const std::string& caller) {
  const auto taken = TakeIn(*asked);
  if (!taken.ok()) return done(taken.status());
  const std::shared_ptr<const NextPhaseRequest> request = *taken;
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.key = WaitKey::Phase(request->job_id());
  waiting.ready = [request](SchedulerCore& core) { return core.PhaseReady(*request); };
  waiting.finish = [this, request, done](SchedulerCore& core, absl::Time now) -> Answer {
    return [this, done, answer = core.NextPhase(*request, now)]() mutable {
      AnswerWhenKept(std::move(answer), done);
    };
  };
  absl::StatusOr<NextPhaseReply> reply;
  const auto next = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = core.NextPhase(*request, now);
    *wait_ms = reply.ok() && !reply->ready() ? request->wait_ms() : 0;
  };
  if (RunOrWait(next, std::move(waiting))) return;
  AnswerWhenKept(std::move(reply), done);
}

void SchedulerLoop::NextTask(const NextTaskRequest& request, Done<NextTaskReply> done) {
  const auto taken = TakeIn(request);
  if (!taken.ok()) return done(taken.status());
  absl::StatusOr<NextTaskReply> reply;
  Run([&](SchedulerCore& core, absl::Time now) { reply = core.NextTask(**taken, now); });
  AnswerWhenKept(std::move(reply), done);
}

absl::StatusOr<GetRouteReply> SchedulerLoop::GetRoute(const GetRouteRequest& request) {
  MutexLock lock(&mutex_);
  return core_.GetRoute(request);
}

absl::Status SchedulerLoop::FailJob(const FailJobRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  absl::Status status;
  Run([&](SchedulerCore& core, absl::Time now) { status = core.FailJob(*taken, now); });
  caller_log_.Say(absl::StrCat("job ", taken->job_id(), ": member ", taken->member_id(),
                               status.ok() ? "" : ", which is refused,",
                               " reports: ", taken->message()));
  SLUICE_RETURN_IF_ERROR(AwaitKept());
  return status;
}

absl::StatusOr<uint64_t> SchedulerLoop::ReserveFolder(const std::string& name, uint64_t number) {
  const std::string& parent = options_.default_output;
  absl::Status made = options_.env->MakeDirs(parent);
  while (made.ok()) {
    made = options_.env->MakeNewDir(absl::StrCat(parent, "/", name, "-", number));
    if (made.ok()) return number;
    if (!absl::IsAlreadyExists(made)) break;
    made = absl::OkStatus();
    ++number;
  }
  return absl::Status(made.code(),
                      absl::StrCat("cannot make a folder for the job in ", parent, ": ",
                                   made.message(), "; give a writable --output_dir"));
}

absl::StatusOr<std::string> SchedulerLoop::KeepAndAdd(const JobDraft& draft, uint64_t number,
                                                      std::unique_ptr<const ResumePoint> resume,
                                                      const SubmitJobRequest& request,
                                                      const std::string& request_id) {
  absl::StatusOr<std::unique_ptr<Job>> job;
  std::vector<MetaStore::Write> records;
  Run([&](SchedulerCore& core, absl::Time) {
    job = core.PrepareJob(draft.config, draft.tables, options_.default_output, number,
                          draft.warnings, std::move(resume));
    if (!job.ok()) return;
    (*job)->request_id = request_id;
    (*job)->allow_older = request.allow_older();
    records = core.RecordsOf(**job);
  });
  SLUICE_RETURN_IF_ERROR(job.status());
  absl::Status kept;
  if (keeper_ != nullptr) kept = keeper_->Commit(records);
  if (absl::IsAborted(kept)) return TakenOver();
  absl::Status refused;
  if (kept.ok()) {
    absl::StatusOr<std::string> job_id;
    Run([&](SchedulerCore& core, absl::Time now) { job_id = core.AddJob(*std::move(job), now); });
    if (job_id.ok() || keeper_ == nullptr) return job_id;
    refused = job_id.status();
  } else {
    refused = absl::FailedPreconditionError(
        absl::StrCat("the job is refused, because the scheduler cannot keep it: ", kept.message()));
  }
  // The store may hold the record in spite of an error, or may still get it. The job has been
  // refused only when the record is surely gone; otherwise the next scheduler may run it.
  const absl::Status gone = keeper_->Commit({{records[0].key, std::nullopt}});
  if (gone.ok()) return refused;
  if (absl::IsAborted(gone)) return TakenOver();
  return absl::UnavailableError(
      absl::StrCat("the scheduler cannot keep its state at present: ", gone.message()));
}

absl::StatusOr<SubmitJobReply> SchedulerLoop::SubmitJob(const SubmitJobRequest& request,
                                                        const std::string& request_id) {
  SubmitJobReply reply;
  const auto submitted_before = [&] {
    MutexLock lock(&mutex_);
    reply.set_job_id(core_.JobOfRequest(request_id));
    return !reply.job_id().empty();
  };
  if (submitted_before()) return reply;
  SLUICE_ASSIGN_OR_RETURN(JobDraft draft,
                          BuildJobDraft(request.config(), options_.core.pserver_num, options_.env));
  const JobConfig& config = draft.config;
  // Reads files: not under a lock.
  std::unique_ptr<const ResumePoint> resume;
  if (request.resume() || request.allow_older()) {
    SubmitJobRequest effective = request;
    *effective.mutable_config() = config;
    SLUICE_ASSIGN_OR_RETURN(
        resume, FindResumePoint(effective, options_.env, options_.clock, &draft.warnings));
  }
  if (resume != nullptr) {
    // The path in the request is ignored now; result.json names what the job once started from.
    draft.config.set_initial_checkpoint(resume->initial_checkpoint);
  } else {
    SLUICE_RETURN_IF_ERROR(FindInitialCheckpoint(options_.env, &draft.config, &draft.warnings));
  }
  options_.log(absl::StrCat("job ", config.name(), " submitted"));
  // One submission at a time: no other may take the number before the job has it.
  MutexLock submit(&submit_mutex_);
  if (submitted_before()) return reply;
  uint64_t number = 1;
  Run([&](SchedulerCore& core, absl::Time) { number = core.next_number(); });
  std::string dir = config.output_dir();
  const bool reserved = dir.empty();
  if (reserved) {
    SLUICE_ASSIGN_OR_RETURN(number, ReserveFolder(config.name(), number));
    dir = absl::StrCat(options_.default_output, "/", config.name(), "-", number);
  }
  const std::string from = resume == nullptr ? "" : resume->dir;
  const absl::StatusOr<std::string> job_id =
      KeepAndAdd(draft, number, std::move(resume), request, request_id);
  if (!job_id.ok()) {
    if (reserved) options_.env->RemoveDir(dir).IgnoreError();
    return job_id.status();
  }
  options_.log(absl::StrCat("job ", *job_id, ": effective configuration: ", dir, "/job.textproto"));
  if (!from.empty()) {
    options_.log(absl::StrCat("job ", *job_id, ": continues from ", from));
  } else if (!config.initial_checkpoint().empty()) {
    options_.log(absl::StrCat("job ", *job_id, ": starts from ", config.initial_checkpoint()));
  }
  reply.set_job_id(*job_id);
  return reply;
}

void SchedulerLoop::WatchJob(const WatchJobRequest* request, Done<WatchJobReply> done,
                             const std::string& caller) {
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.key = WaitKey::Status(request->job_id());
  waiting.ready = [request](SchedulerCore& core) {
    const absl::StatusOr<uint64_t> version = core.JobVersion(request->job_id());
    return !version.ok() || *version > request->seen_version();
  };
  waiting.finish = [request, done](SchedulerCore& core, absl::Time) -> Answer {
    return [done, answer = core.WatchJob(*request)]() mutable { done(std::move(answer)); };
  };
  absl::StatusOr<WatchJobReply> reply;
  const auto watch = [&](SchedulerCore& core, absl::Time, uint32_t* wait_ms) {
    // A status is large, so make it only when it is sent.
    *wait_ms = waiting.ready(core) ? 0 : request->wait_ms();
    if (*wait_ms == 0) reply = core.WatchJob(*request);
  };
  if (!RunOrWait(watch, waiting)) done(std::move(reply));
}

void SchedulerLoop::CheckpointJob(const CheckpointJobRequest* request,
                                  Done<CheckpointJobReply> done, const std::string& caller) {
  absl::StatusOr<CheckpointJobReply> reply;
  uint64_t number = 0;
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.key = WaitKey::Status(request->job_id());
  // The number is known only when the call begins to wait.
  const auto asked = std::make_shared<uint64_t>(request->number());
  waiting.ready = [request, asked](SchedulerCore& core) {
    return core.CheckpointOver(request->job_id(), *asked);
  };
  waiting.finish = [this, request, asked, done](SchedulerCore& core, absl::Time now) -> Answer {
    return [this, done, answer = core.CheckpointJob(request->job_id(), *asked, now)]() mutable {
      AnswerWhenKept(std::move(answer), done, /*confirm=*/true);
    };
  };
  const auto ask = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = core.CheckpointJob(request->job_id(), request->number(), now);
    number = reply.ok() ? reply->number() : 0;
    *asked = number;
    *wait_ms = reply.ok() && !reply->done() ? request->wait_ms() : 0;
  };
  const bool waits = RunOrWait(ask, std::move(waiting));
  if (request->number() == 0 && number != 0)
    options_.log(absl::StrCat("job ", request->job_id(), ": checkpoint ", number, " asked for"));
  if (!waits) AnswerWhenKept(std::move(reply), done, /*confirm=*/true);
}

absl::Status SchedulerLoop::CancelJob(const CancelJobRequest& request) {
  caller_log_.Say(absl::StrCat("job ", request.job_id(), ": cancel"));
  absl::Status status;
  Run([&](SchedulerCore& core, absl::Time now) {
    status = core.CancelJob(request.job_id(), now, PrintableLine(request.failure()));
  });
  // The end is kept before it is answered.
  SLUICE_RETURN_IF_ERROR(AwaitKept());
  return status;
}

absl::Status SchedulerLoop::ScaleJob(const ScaleJobRequest& request) {
  caller_log_.Say(
      absl::StrCat("job ", request.job_id(), ": scale to ", request.worker_num(), " workers"));
  absl::Status status;
  Run([&](SchedulerCore& core, absl::Time now) {
    status = core.ScaleJob(request.job_id(), request.worker_num(), now);
  });
  // A newer scheduler does not know of the request.
  SLUICE_RETURN_IF_ERROR(AwaitKept());
  return status;
}

absl::StatusOr<DrainPserverReply> SchedulerLoop::DrainPserver(const DrainPserverRequest& request) {
  absl::StatusOr<DrainPserverReply> reply;
  Run([&](SchedulerCore& core, absl::Time now) { reply = core.DrainPserver(request, now); });
  // The call is repeated to learn how far it is, so only its ends are logged.
  if (!reply.ok() || reply->jobs().empty() || !reply->failure().empty()) {
    const std::string end = !reply.ok()                ? std::string(reply.status().message())
                            : reply->failure().empty() ? "no job has shards there"
                                                       : reply->failure();
    caller_log_.Say(absl::StrCat("pserver ", request.rank(), ": drain",
                                 request.cancel() ? " cancelled" : "", ": ", end));
  }
  // The mark is kept before it is answered.
  SLUICE_RETURN_IF_ERROR(AwaitKept());
  return reply;
}

ClusterStatus SchedulerLoop::GetStatus() {
  ClusterStatus status;
  {
    MutexLock lock(&mutex_);
    status = core_.GetStatus(options_.clock->Now());
  }
  const absl::Status trouble = keeper_ == nullptr ? absl::OkStatus() : keeper_->trouble();
  if (trouble.ok()) return status;
  MemberStatus* const self = status.add_members();
  self->set_role(ROLE_SCHEDULER);
  self->set_host(options_.host);
  self->set_alive(true);
  self->set_doing(
      absl::StrCat("cannot keep its state, so no job can be submitted: ", trouble.message()));
  return status;
}

absl::Status SchedulerLoop::Shutdown() {
  // Before the members are told to stop: they may be those of a newer scheduler.
  SLUICE_RETURN_IF_ERROR(AwaitKept());
  bool begins = false;
  Run([&](SchedulerCore& core, absl::Time now) {
    begins = !core.shutting_down();
    core.Shutdown(now);
  });
  if (begins) options_.log("shutting down");
  return absl::OkStatus();
}

bool SchedulerLoop::ShuttingDown() {
  MutexLock lock(&mutex_);
  return core_.shutting_down();
}

void SchedulerLoop::WaitEnd() {
  MutexLock lock(&mutex_);
  while (!ended_) changed_.Wait(&mutex_);
}

void SchedulerLoop::StopWaiting() {
  {
    MutexLock lock(&mutex_);
    stop_waiting_ = true;
  }
  Run([](SchedulerCore&, absl::Time) {});
}

std::string SchedulerLoop::NotReady() {
  MutexLock lock(&mutex_);
  return core_.NotReady();
}

void SchedulerLoop::NameMissing(absl::Time now) {
  if (now - named_at_ < kNameMissingEvery) return;
  named_at_ = now;
  const std::string missing = NotReady();
  if (!missing.empty()) options_.log(absl::StrCat("waiting for ", missing));
}

void SchedulerLoop::TimerLoop() {
  bool ended = false;
  for (;;) {
    {
      MutexLock lock(&mutex_);
      if (!stopping_) changed_.WaitFor(&mutex_, kTick);
      if (stopping_) return;
    }
    bool can_end = false, shutting_down = false;
    Run([&](SchedulerCore& core, absl::Time now) {
      core.Tick(now);
      shutting_down = core.shutting_down();
      can_end = core.CanEnd(now);
    });
    const bool end = can_end && !ended;
    ended = can_end;
    if (end) {
      {
        MutexLock lock(&mutex_);
        ended_ = true;
        changed_.NotifyAll();
      }
      if (options_.on_end) options_.on_end();
    }
    LookAfterSilentMembers();
    if (!shutting_down) NameMissing(options_.clock->Now());
  }
}

}  // namespace sluice
