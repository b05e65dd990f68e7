#include "scheduler/service/scheduler_loop.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/daemon/process_info.h"
#include "common/meta_store/record_parts.h"
#include "scheduler/files/starting_point.h"
#include "scheduler/recovery/job_adoption.h"
#include "scheduler/registry/job_records.h"

namespace sluice {
namespace {

constexpr uint32_t kLongestWaitMs = 30000;
constexpr std::chrono::milliseconds kTick(100);
constexpr absl::Duration kNameMissingEvery = absl::Seconds(3);

// "export 4"
std::string CutName(const OutputAction& action) {
  return absl::StrCat(action.manifest.has_export_() ? "export " : "checkpoint ", action.number);
}

std::string LineOf(const OutputAction& action) {
  if (action.kind == OutputAction::kStarted) {
    return absl::StrCat("starts on ", action.config.worker_num(),
                        action.config.worker_num() == 1 ? " worker" : " workers", ", writes to ",
                        action.config.output_dir());
  }
  if (action.kind == OutputAction::kDiscard && !action.why.empty()) {
    return absl::StrCat(CutName(action), " of step ", action.manifest.global_step(),
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

// Tells `done` whether a newer scheduler has taken over. Other errors of the store are none of the
// caller's: a store that cannot be written does not undo a decision.
StateKeeper::Done WhetherTakenOver(SchedulerLoop::Kept done) {
  return [done = std::move(done)](const absl::Status& kept) {
    done(absl::IsAborted(kept) ? SchedulerLoop::TakenOver() : absl::OkStatus());
  };
}

}  // namespace

absl::Status SchedulerLoop::TakenOver() {
  return absl::UnavailableError("a newer scheduler has taken over");
}

absl::Status SchedulerLoop::NoMemory() {
  return absl::ResourceExhaustedError("the scheduler has no memory for this call; try again");
}

SchedulerLoop::SchedulerLoop(Options options)
    : options_(std::move(options)),
      core_(options_.core, options_.clock->Now()),
      waiting_(CallRoom::For(options_.core.worker_num, options_.core.pserver_num)) {
  named_at_ = options_.clock->Now();
  core_.SetTimeOfDay(options_.clock->WallNow() - named_at_);
  output_ = std::make_unique<JobOutput>(OutputOptions());
  if (options_.store != nullptr) {
    keeper_ = std::make_unique<StateKeeper>(KeeperOptions());
    // Not by its constructor: the callbacks use keeper_.
    keeper_->Start();
  }
  RestoreJobs();
  timer_ = std::thread([this] { TimerLoop(); });
}

JobOutput::Options SchedulerLoop::OutputOptions() {
  JobOutput::Options output;
  output.env = options_.env;
  output.host = options_.host;
  output.staging = options_.staging;
  output.on_begun = [this](const std::string& job_id) {
    Run([&](SchedulerCore& core, absl::Time now) { core.OutputBegun(job_id, now); });
  };
  output.on_curves = [this](const std::string& job_id, const ThinCurves& earlier) {
    if (options_.curves != nullptr) options_.curves->Continue(job_id, earlier);
  };
  output.on_failed = [this](const std::string& job_id, absl::Status status) {
    options_.job_log(job_id, std::string(status.message()));
    Run([&](SchedulerCore& core, absl::Time now) { core.OutputFailed(job_id, status, now); });
  };
  output.on_warning = [this](const std::string& job_id, const std::string& warning) {
    options_.job_log(job_id, warning);
    Run([&](SchedulerCore& core, absl::Time) { core.Warn(job_id, warning); });
  };
  output.on_checkpoint = [this](const OutputAction& made, absl::Status status,
                                const std::string& warning) {
    if (status.ok()) options_.job_log(made.job_id, absl::StrCat(CutName(made), " is complete"));
    if (!warning.empty()) options_.job_log(made.job_id, warning);
    Run([&](SchedulerCore& core, absl::Time now) {
      core.CheckpointWritten(made.job_id, made.number, status, warning, now);
    });
  };
  output.on_away = [this](const std::string& job_id, const absl::Status& why) {
    options_.job_log(job_id,
                     absl::StrCat("the result waits for the place of the output: ", why.message()));
    Run([&](SchedulerCore& core, absl::Time) { core.OutputAway(job_id, why); });
  };
  output.on_ended = [this](const std::string& job_id, absl::Status status) {
    if (!status.ok()) options_.job_log(job_id, std::string(status.message()));
    Run([&](SchedulerCore& core, absl::Time) { core.OutputEnded(job_id, status); });
  };
  return output;
}

StateKeeper::Options SchedulerLoop::KeeperOptions() {
  StateKeeper::Options keeper;
  keeper.store = options_.store;
  keeper.term = options_.term;
  keeper.parts = options_.stored.parts;
  keeper.left_over = options_.stored.left_over;
  keeper.clock = options_.clock;
  keeper.log = options_.log;
  keeper.on_superseded = options_.on_superseded;
  keeper.on_trouble = [this](const absl::Status& trouble) {
    Run([&](SchedulerCore& core, absl::Time now) {
      core.StoreRefuses(std::string(trouble.message()), now);
    });
  };
  keeper.cut_off = absl::ToChronoMilliseconds(options_.cut_off);
  return keeper;
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
  Env* const env = options_.env;
  Clock* const clock = options_.clock;
  JobRestorer::Calls calls;
  calls.log = options_.job_log;
  calls.find_point = [=](const JobRecord& record, bool verify, std::vector<std::string>* warnings) {
    return FindRestartPoint(record, verify, env, clock, warnings);
  };
  calls.read_point = [=](const std::string& dir, const JobConfig& config) {
    return ReadResumePoint(dir, config, env, clock);
  };
  // One event a job, so that its records are committed before the next job is looked at.
  calls.restore = [this](const JobRecord& record, JobRestorer::Point point,
                         std::optional<RunHandover> run) {
    Run([&](SchedulerCore& core, absl::Time now) {
      core.RestoreJob(record, std::move(point), std::move(run), now);
    });
  };
  calls.forget = [this](const StoredRun& run) {
    Run([&](SchedulerCore& core, absl::Time) { core.ForgetRun(run); });
  };
  JobRestorer(std::move(calls)).RestoreAll(options_.stored);
}

template <class Step>
bool SchedulerLoop::Try(const Step& step, std::string* line) {
  try {
    step();
    return true;
  } catch (const std::bad_alloc&) {
    // A line each time that their number has doubled.
    const uint64_t n = ++without_memory_;
    if ((n & (n - 1)) != 0) return false;
    *line = absl::StrCat("there was no memory for a call or a decision (", n,
                         " so far); give the scheduler more memory, or run fewer jobs at a time");
    return false;
  }
}

void SchedulerLoop::Run(const Event& event) {
  std::vector<Answer> answers;
  std::string line;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    Try([&, core = &core_] { event(*core, now); }, &line);
    answers = Settle(now, /*all=*/stop_waiting_);
  }
  if (!line.empty()) options_.log(line);
  for (const Answer& answer : answers) answer();
}

void SchedulerLoop::Look(const Event& look) {
  MutexLock lock(&mutex_);
  look(core_, options_.clock->Now());
}

bool SchedulerLoop::RunOrWait(const WaitingEvent& event, WaitingCalls::Call call) {
  std::vector<Answer> answers;
  std::string line;
  uint32_t wait_ms = 0;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    // An event that was cut short has its answer already. It must not wait as well.
    if (!Try([&, core = &core_] { event(*core, now, &wait_ms); }, &line)) wait_ms = 0;
    if (wait_ms > 0) {
      call.deadline = now + absl::Milliseconds(std::min(wait_ms, kLongestWaitMs));
      const std::optional<std::string> loser = waiting_.Add(std::move(call));
      if (loser.has_value()) line = CrowdedOut(*loser);
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
  return absl::StrCat("a call that waits was answered early, because its caller ", caller,
                      " has too many, or has the most while all together have too many: ", n,
                      " calls of all callers so far");
}

std::vector<SchedulerLoop::Answer> SchedulerLoop::Settle(absl::Time now, bool all) {
  // First: an answer may change the core, and what it changes belongs to this event.
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
  for (const OutputAction& action : actions) {
    log(action.job_id, LineOf(action));
    if (options_.curves == nullptr) continue;
    if (action.kind == OutputAction::kScalars) options_.curves->Add(action.job_id, action.scalars);
    if (action.kind == OutputAction::kEnded) options_.curves->End(action.job_id);
  }
  // Called under the lock, so that outputs are written in the order of the decisions.
  std::vector<MetaStore::Write> records = TakeRecords();
  if (keeper_ == nullptr) {
    output_->Add(std::move(actions));
  } else if (!records.empty() || !actions.empty()) {
    // A scheduler that was stopped for a while may have a successor without knowing it. Before it
    // touches files that both write to, the store has to confirm its term.
    const bool confirm = std::any_of(actions.begin(), actions.end(), ChangesSharedFiles);
    StateKeeper::Done write = [this,
                               actions = std::move(actions)](const absl::Status& kept) mutable {
      // The newer scheduler writes the files of its jobs.
      if (!absl::IsAborted(kept)) output_->Add(std::move(actions));
    };
    keeper_->Add(std::move(records), std::move(write), confirm);
  } else {
    output_->Add({});
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
      if (keeper_ == nullptr || size <= kMaxRecordBytes) {
        kept.push_back(std::move(record));
        continue;
      }
      const RecordOwner owner = OwnerOf(record.key);
      core_.Warn(owner.job_id,
                 absl::StrCat("the scheduler cannot keep all that it knows of the job: more than ",
                              kMaxRecordBytes, " bytes; if it dies, the job ",
                              owner.of_job ? "continues from what was kept before"
                                           : "goes back to its newest checkpoint"));
      // Without the record of the job itself, the next scheduler would not know the job at all.
      if (!owner.of_job) kept.push_back({std::move(record.key), std::nullopt});
    }
  }
}

void SchedulerLoop::WhenKept(Kept done, bool confirm) {
  if (keeper_ == nullptr) return done(absl::OkStatus());
  // Training does not wait for a store that is known to be out of reach. If this scheduler dies
  // before it is back, the next one notices what its records lack.
  keeper_->AddAnswer(WhetherTakenOver(std::move(done)), confirm);
}

void SchedulerLoop::WhenTried(Kept done) {
  if (keeper_ == nullptr) return done(absl::OkStatus());
  keeper_->Add({}, WhetherTakenOver(std::move(done)), /*confirm=*/true);
}

absl::Status SchedulerLoop::Commit(std::vector<MetaStore::Write> records) {
  return keeper_ == nullptr ? absl::OkStatus() : keeper_->Commit(std::move(records));
}

bool SchedulerLoop::SeesEnded(const std::string& process_space, uint32_t pid) const {
  return !options_.process_space.empty() && process_space == options_.process_space &&
         options_.process_has_ended(pid);
}

void SchedulerLoop::LookAfterSilentMembers() {
  std::vector<MemberEndedRequest> silent;
  Look([&](SchedulerCore& core, absl::Time now) {
    silent = core.SilentMembers(options_.process_space, now);
  });
  // Without the lock: looking at a process asks the kernel. The member may leave meanwhile, or
  // another process take its place, which MemberEnded notices.
  for (MemberEndedRequest& member : silent) {
    if (!options_.process_has_ended(member.pid())) continue;
    member.set_reason("its process has ended");
    bool ended = false;  // false: it has left or was replaced meanwhile
    Run([&](SchedulerCore& core, absl::Time now) {
      ended = core.members().MemberEnded(member, now);
    });
    if (!ended) continue;
    options_.log(absl::StrCat(RoleName(member.role()), " ", member.rank(), " (pid ", member.pid(),
                              "): ", member.reason()));
  }
}

void SchedulerLoop::NameSelf(MemberStatus self) {
  MutexLock lock(&mutex_);
  self_ = std::move(self);
}

ClusterStatus SchedulerLoop::GetStatus() {
  ClusterStatus status;
  {
    MutexLock lock(&mutex_);
    status = core_.operators().GetStatus(options_.clock->Now());
    *status.mutable_scheduler() = self_;
  }
  status.mutable_scheduler()->set_memory_bytes(ResidentBytes());
  status.mutable_scheduler()->set_cpu_seconds(CpuSeconds());
  const absl::Status trouble = keeper_ == nullptr ? absl::OkStatus() : keeper_->trouble();
  if (trouble.ok()) return status;
  MemberStatus* const self = status.add_members();
  self->set_role(ROLE_SCHEDULER);
  self->set_host(options_.host);
  self->set_alive(true);
  self->set_doing(
      absl::StrCat("cannot keep its state, so no job can be submitted and lost members are not "
                   "replaced: ",
                   trouble.message()));
  return status;
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
      core.SetTimeOfDay(options_.clock->WallNow() - now);
      core.Tick(now);
      shutting_down = core.shutting_down();
      can_end = core.CanEnd(now);
    });
    // on_end is called once, although CanEnd stays true until the server has stopped.
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
