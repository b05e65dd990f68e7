#include "scheduler/scheduler_loop.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "scheduler/find_initial_checkpoint.h"
#include "scheduler/find_resume_point.h"
#include "scheduler/job_folder.h"
#include "scheduler/job_spec_builder.h"

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

}  // namespace

SchedulerLoop::SchedulerLoop(Options options)
    : options_(std::move(options)), core_(options_.core, options_.clock->Now()) {
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
  output.on_trace_failed = [this](const std::string& job_id, absl::Status status) {
    const std::string warning = JobFolder::TraceWarning(status);
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
  output_->Stop();  // its last callbacks still call Run
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
  uint32_t wait_ms = 0;
  {
    MutexLock lock(&mutex_);
    const absl::Time now = options_.clock->Now();
    event(core_, now, &wait_ms);
    if (wait_ms > 0) {
      call.deadline = now + absl::Milliseconds(std::min(wait_ms, kLongestWaitMs));
      waiting_.Add(std::move(call));
    }
    answers = Settle(now, /*all=*/stop_waiting_);
  }
  for (const Answer& answer : answers) answer();
  return wait_ms > 0;
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
  for (const OutputAction& action : actions) {
    const std::string line = LineOf(action);
    if (line.empty()) continue;
    answers.push_back([this, job_id = action.job_id, line] { options_.job_log(job_id, line); });
  }
  // Called under the lock, so that outputs are written in the order of the decisions.
  output_->Add(std::move(actions));
  return answers;
}

absl::StatusOr<RegisterReply> SchedulerLoop::Register(const RegisterRequest& request) {
  absl::StatusOr<RegisterReply> reply;
  Run([&](SchedulerCore& core, absl::Time now) { reply = core.Register(request, now); });
  LogRegistration(request, reply);
  return reply;
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
  options_.log(absl::StrCat(RoleName(request.role()), " ", request.rank(), " (pid ", request.pid(),
                            " on host ", request.host(), "): ", what));
}

void SchedulerLoop::Poll(const PollRequest* request, Done<PollReply> done) {
  WaitingCalls::Call waiting;
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

void SchedulerLoop::Leave(const LeaveRequest& request) {
  Run([&](SchedulerCore& core, absl::Time now) { core.Leave(request, now); });
}

void SchedulerLoop::MemberEnded(const MemberEndedRequest& request) {
  options_.log(absl::StrCat(RoleName(request.role()), " ", request.rank(), " (pid ", request.pid(),
                            "): ", request.reason()));
  Run([&](SchedulerCore& core, absl::Time now) { core.MemberEnded(request, now); });
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
    MemberEnded(member);
  }
}

void SchedulerLoop::NextPhase(const NextPhaseRequest* request, Done<NextPhaseReply> done) {
  WaitingCalls::Call waiting;
  waiting.key = WaitKey::Phase(request->job_id());
  waiting.ready = [request](SchedulerCore& core) { return core.PhaseReady(*request); };
  waiting.finish = [request, done](SchedulerCore& core, absl::Time now) -> Answer {
    return [done, answer = core.NextPhase(*request, now)]() mutable { done(std::move(answer)); };
  };
  absl::StatusOr<NextPhaseReply> reply;
  const auto next = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = core.NextPhase(*request, now);
    *wait_ms = reply.ok() && !reply->ready() ? request->wait_ms() : 0;
  };
  if (!RunOrWait(next, std::move(waiting))) done(std::move(reply));
}

absl::StatusOr<NextTaskReply> SchedulerLoop::NextTask(const NextTaskRequest& request) {
  absl::StatusOr<NextTaskReply> reply;
  Run([&](SchedulerCore& core, absl::Time) { reply = core.NextTask(request); });
  return reply;
}

absl::StatusOr<GetRouteReply> SchedulerLoop::GetRoute(const GetRouteRequest& request) {
  MutexLock lock(&mutex_);
  return core_.GetRoute(request);
}

absl::Status SchedulerLoop::FailJob(const FailJobRequest& request) {
  options_.log(absl::StrCat("job ", request.job_id(), ": member ", request.member_id(),
                            " reports: ", request.message()));
  absl::Status status;
  Run([&](SchedulerCore& core, absl::Time now) { status = core.FailJob(request, now); });
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

absl::StatusOr<SubmitJobReply> SchedulerLoop::SubmitJob(const SubmitJobRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(JobDraft draft, BuildJobDraft(request.config()));
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
    // What is submitted now plays no part; result.json names what the job once started from.
    draft.config.set_initial_checkpoint(resume->initial_checkpoint);
  } else {
    SLUICE_RETURN_IF_ERROR(FindInitialCheckpoint(options_.env, &draft.config, &draft.warnings));
  }
  options_.log(absl::StrCat("job ", config.name(), " submitted"));
  // One submission at a time: no other may take the number before the job has it.
  MutexLock submit(&submit_mutex_);
  uint64_t number = 1;
  Run([&](SchedulerCore& core, absl::Time) { number = core.next_number(); });
  std::string dir = config.output_dir();
  const bool reserved = dir.empty();
  if (reserved) {
    SLUICE_ASSIGN_OR_RETURN(number, ReserveFolder(config.name(), number));
    dir = absl::StrCat(options_.default_output, "/", config.name(), "-", number);
  }
  const std::string from = resume == nullptr ? "" : resume->dir;
  absl::StatusOr<std::string> job_id;
  Run([&](SchedulerCore& core, absl::Time now) {
    job_id = core.SubmitJob(config, draft.tables, options_.default_output, number, now,
                            draft.warnings, std::move(resume));
  });
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
  SubmitJobReply reply;
  reply.set_job_id(*job_id);
  return reply;
}

void SchedulerLoop::WatchJob(const WatchJobRequest* request, Done<WatchJobReply> done) {
  WaitingCalls::Call waiting;
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
                                  Done<CheckpointJobReply> done) {
  absl::StatusOr<CheckpointJobReply> reply;
  uint64_t number = 0;
  WaitingCalls::Call waiting;
  waiting.key = WaitKey::Status(request->job_id());
  // The number is known only when the call begins to wait.
  const auto asked = std::make_shared<uint64_t>(request->number());
  waiting.ready = [request, asked](SchedulerCore& core) {
    return core.CheckpointOver(request->job_id(), *asked);
  };
  waiting.finish = [request, asked, done](SchedulerCore& core, absl::Time now) -> Answer {
    return [done, answer = core.CheckpointJob(request->job_id(), *asked, now)]() mutable {
      done(std::move(answer));
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
  if (!waits) done(std::move(reply));
}

absl::Status SchedulerLoop::CancelJob(const CancelJobRequest& request) {
  options_.log(absl::StrCat("job ", request.job_id(), ": cancel"));
  absl::Status status;
  Run([&](SchedulerCore& core, absl::Time now) { status = core.CancelJob(request.job_id(), now); });
  return status;
}

ClusterStatus SchedulerLoop::GetStatus() {
  MutexLock lock(&mutex_);
  return core_.GetStatus(options_.clock->Now());
}

void SchedulerLoop::Shutdown() {
  bool begins = false;
  Run([&](SchedulerCore& core, absl::Time now) {
    begins = !core.shutting_down();
    core.Shutdown(now);
  });
  if (begins) options_.log("shutting down");
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
