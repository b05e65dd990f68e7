#include "scheduler/service/request_intake.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/printable.h"
#include "common/base/status_macros.h"
#include "scheduler/core/request_text.h"

namespace sluice {
namespace {

using Answer = WaitingCalls::Answer;

// Answers a call when what it has changed is kept. The newer scheduler, if there is one, does not
// know of the answer.
template <class Given, class GivenTo>
SchedulerLoop::Kept AnswerWith(Given answer, GivenTo done) {
  return [answer = std::move(answer), done = std::move(done)](const absl::Status& kept) mutable {
    if (!kept.ok()) answer = kept;
    done(std::move(answer));
  };
}

}  // namespace

LimitedLog::Limits RequestIntake::LimitsOfCallers() {
  LimitedLog::Limits limits = LimitedLog::OfCallers();
  limits.write_repeats = false;
  return limits;
}

absl::StatusOr<RegisterReply> RequestIntake::Register(const RegisterRequest& request, bool believed,
                                                      RegisterNotes* notes) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  absl::StatusOr<RegisterReply> reply = SchedulerLoop::NoMemory();
  const auto ask = [&](SchedulerCore& core, absl::Time now) {
    reply = core.members().Register(*taken, now, believed, notes);
  };
  loop_->Run(ask);
  // The scheduler can see that a process on its own host has ended. Then the newcomer need not wait
  // for the lease of the dead one.
  if (reply.ok() && reply->has_incumbent() && FreePlaceOf(*taken, reply->incumbent()))
    loop_->Run(ask);
  LogRegistration(*taken, reply);
  return reply;
}

bool RequestIntake::FreePlaceOf(const RegisterRequest& newcomer, const Incumbent& incumbent) {
  if (!loop_->SeesEnded(incumbent.process_space(), incumbent.pid())) return false;
  MemberEndedRequest ended;
  ended.set_role(newcomer.role());
  ended.set_rank(newcomer.rank());
  ended.set_pid(incumbent.pid());
  ended.set_process_space(incumbent.process_space());
  ended.set_reason("its process has ended");
  return MemberEnded(ended).ok();
}

void RequestIntake::LogRegistration(const RegisterRequest& request,
                                    const absl::StatusOr<RegisterReply>& reply) {
  std::string what;
  if (!reply.ok()) {
    what = std::string(reply.status().message());
  } else if (reply->member_id() != 0) {
    what = absl::StrCat("registered as member ", reply->member_id());
  } else {
    // A refused process asks again and again; log only its first refusal.
    // Relaxed: two lines instead of one do no harm.
    if (refused_life_.exchange(request.life(), std::memory_order_relaxed) == request.life()) return;
    what = absl::StrCat("refused while pid ", reply->incumbent().pid(), " on host ",
                        reply->incumbent().host(), " has this rank");
  }
  caller_log_.Say(absl::StrCat(RoleName(request.role()), " ", request.rank(), " (pid ",
                               request.pid(), " on host ", request.host(), "): ", what));
}

void RequestIntake::Poll(const PollRequest* asked, Done<PollReply> done,
                         const std::string& caller) {
  const auto taken = TakeIn(*asked);
  if (!taken.ok()) return done(taken.status());
  const std::shared_ptr<const PollRequest> request = *taken;
  const uint64_t member = request->member_id(), seen = request->seen_version();
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  // A report that a member repeats replaces the one that waits: the newer connection is the one
  // that lives.
  waiting.name = absl::StrCat("poll of member ", member);
  waiting.key = WaitKey::Desired(member);
  waiting.ready = [member, seen](SchedulerCore& core) {
    const absl::StatusOr<uint64_t> version = core.members().DesiredVersion(member);
    return !version.ok() || *version != seen;
  };
  waiting.finish = [member, seen, done](SchedulerCore& core, absl::Time) -> Answer {
    return [done, answer = core.members().Desired(member, seen)]() mutable {
      done(std::move(answer));
    };
  };
  absl::StatusOr<PollReply> reply = SchedulerLoop::NoMemory();
  const auto poll = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = core.members().Poll(*request, now);
    // Callers with news are answered at once.
    const bool nothing_new = reply.ok() && reply->version() == seen;
    *wait_ms = nothing_new ? request->wait_ms() : 0;
  };
  if (!loop_->RunOrWait(poll, std::move(waiting))) done(std::move(reply));
}

absl::Status RequestIntake::Leave(const LeaveRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  absl::Status status = SchedulerLoop::NoMemory();
  loop_->Run(
      [&](SchedulerCore& core, absl::Time now) { status = core.members().Leave(*taken, now); });
  return status;
}

std::optional<std::pair<Role, uint32_t>> RequestIntake::RoleAndRankOf(uint64_t member_id) {
  std::optional<std::pair<Role, uint32_t>> found;
  loop_->Look(
      [&](SchedulerCore& core, absl::Time) { found = core.members().RoleAndRankOf(member_id); });
  return found;
}

absl::Status RequestIntake::MemberEnded(const MemberEndedRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  const std::string who =
      absl::StrCat(RoleName(taken->role()), " ", taken->rank(), " (pid ", taken->pid(), ")");
  bool ended = false, known = false;
  loop_->Run([&](SchedulerCore& core, absl::Time now) {
    ended = core.members().MemberEnded(*taken, now);
    known = core.members().Knows(*taken);
  });
  if (!known) {
    return absl::FailedPreconditionError(
        absl::StrCat(who, " has not registered since this scheduler was started"));
  }
  if (!ended) return absl::NotFoundError(absl::StrCat(who, " is no living member"));
  caller_log_.Say(absl::StrCat(who, ": ", taken->reason()));
  return absl::OkStatus();
}

void RequestIntake::ConnectionBroke(uint64_t member_id, const std::string& secret) {
  loop_->Run([&](SchedulerCore& core, absl::Time now) {
    core.members().ConnectionBroke(member_id, secret, now);
  });
}

void RequestIntake::NextPhase(const NextPhaseRequest* asked, Done<NextPhaseReply> done,
                              const std::string& caller) {
  const auto taken = TakeIn(*asked);
  if (!taken.ok()) return done(taken.status());
  const std::shared_ptr<const NextPhaseRequest> request = *taken;
  // The report, which may be large, has been taken when the call begins to wait.
  NextPhaseRequest asks;
  asks.set_job_id(request->job_id());
  asks.set_rank(request->rank());
  asks.set_incarnation(request->incarnation());
  asks.set_pass(request->pass());
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  // With the life: an earlier life that still calls must not end the call of the present one.
  waiting.name = absl::StrCat("phase of rank ", request->rank(), " in its life ",
                              request->incarnation(), " of job ", request->job_id());
  waiting.key = WaitKey::Phase(request->job_id());
  waiting.ready = [asks](SchedulerCore& core) { return core.workers().PhaseReady(asks); };
  waiting.finish = [loop = loop_, asks, done](SchedulerCore& core, absl::Time now) -> Answer {
    return [loop, done, answer = core.workers().NextPhase(asks, now)]() mutable {
      // The rank acts on the answer. If this scheduler dies, the next one must know the phase that
      // it was given.
      loop->WhenKept(AnswerWith(std::move(answer), done));
    };
  };
  absl::StatusOr<NextPhaseReply> reply = SchedulerLoop::NoMemory();
  const auto next = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = core.workers().NextPhase(*request, now);
    *wait_ms = reply.ok() && !reply->ready() ? request->wait_ms() : 0;
  };
  if (loop_->RunOrWait(next, std::move(waiting))) return;
  loop_->WhenKept(AnswerWith(std::move(reply), std::move(done)));
}

void RequestIntake::NextTask(const NextTaskRequest& request, Done<NextTaskReply> done) {
  const auto taken = TakeIn(request);
  if (!taken.ok()) return done(taken.status());
  absl::StatusOr<NextTaskReply> reply = SchedulerLoop::NoMemory();
  loop_->Run(
      [&](SchedulerCore& core, absl::Time now) { reply = core.workers().NextTask(**taken, now); });
  loop_->WhenKept(AnswerWith(std::move(reply), std::move(done)));
}

absl::StatusOr<GetRouteReply> RequestIntake::GetRoute(const GetRouteRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const auto taken, TakeIn(request));
  absl::StatusOr<GetRouteReply> reply;
  loop_->Look([&](SchedulerCore& core, absl::Time) { reply = core.workers().GetRoute(*taken); });
  return reply;
}

void RequestIntake::FailJob(const FailJobRequest& request, DoneStatus done) {
  const auto taken = TakeIn(request);
  if (!taken.ok()) return done(taken.status());
  const FailJobRequest& report = **taken;
  absl::Status status = SchedulerLoop::NoMemory();
  loop_->Run(
      [&](SchedulerCore& core, absl::Time now) { status = core.workers().FailJob(report, now); });
  caller_log_.Say(absl::StrCat("job ", report.job_id(), ": member ", report.member_id(),
                               status.ok() ? "" : ", which is refused,",
                               " reports: ", report.message()));
  loop_->WhenTried(AnswerWith(std::move(status), std::move(done)));
}

void RequestIntake::Gather(const GatherRequest* asked, Done<GatherReply> done,
                           const std::string& caller) {
  const auto taken = TakeIn(*asked);
  if (!taken.ok()) return done(taken.status());
  const std::shared_ptr<const GatherRequest> request = *taken;
  // What the rank gives has been taken when the call begins to wait.
  GatherRequest asks = *request;
  asks.clear_data();
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.name = absl::StrCat("gather of rank ", request->rank(), " in its life ",
                              request->incarnation(), " of job ", request->job_id());
  // A call that is over, and the end of the job, wake these calls as well.
  waiting.key = WaitKey::Phase(request->job_id());
  waiting.ready = [asks](SchedulerCore& core) { return core.workers().GatherReady(asks); };
  waiting.finish = [loop = loop_, asks, done](SchedulerCore& core, absl::Time) -> Answer {
    return [loop, done, answer = core.workers().Gather(asks)]() mutable {
      // The rank acts on the answer, which the next scheduler must be able to repeat.
      loop->WhenKept(AnswerWith(std::move(answer), done));
    };
  };
  absl::StatusOr<GatherReply> reply = SchedulerLoop::NoMemory();
  const auto gather = [&](SchedulerCore& core, absl::Time, uint32_t* wait_ms) {
    reply = core.workers().Gather(*request);
    *wait_ms = reply.ok() && !reply->ready() ? request->wait_ms() : 0;
  };
  if (loop_->RunOrWait(gather, std::move(waiting))) return;
  loop_->WhenKept(AnswerWith(std::move(reply), std::move(done)));
}

void RequestIntake::EndJob(const EndJobRequest& request, DoneStatus done) {
  const auto taken = TakeIn(request);
  if (!taken.ok()) return done(taken.status());
  const EndJobRequest& report = **taken;
  absl::Status status = SchedulerLoop::NoMemory();
  loop_->Run(
      [&](SchedulerCore& core, absl::Time now) { status = core.workers().EndJob(report, now); });
  caller_log_.Say(absl::StrCat("job ", report.job_id(), ": the program of member ",
                               report.member_id(), report.cancels() ? " cancels it" : " ends it",
                               status.ok() ? "" : ", which is refused"));
  // The rank leaves its loop once it has the answer, and nothing would ask for the end again.
  loop_->WhenKept(AnswerWith(std::move(status), std::move(done)));
}

void RequestIntake::WatchJob(const WatchJobRequest* asked, Done<WatchJobReply> done,
                             const std::string& caller) {
  const WatchJobRequest request = *asked;
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.key = WaitKey::Status(request.job_id());
  waiting.ready = [request](SchedulerCore& core) {
    const absl::StatusOr<uint64_t> version = core.operators().JobVersion(request.job_id());
    return !version.ok() || *version > request.seen_version();
  };
  waiting.finish = [request, done](SchedulerCore& core, absl::Time) -> Answer {
    return
        [done, answer = core.operators().WatchJob(request)]() mutable { done(std::move(answer)); };
  };
  absl::StatusOr<WatchJobReply> reply = SchedulerLoop::NoMemory();
  const auto watch = [&](SchedulerCore& core, absl::Time, uint32_t* wait_ms) {
    // A status is large, so make it only when it is sent.
    *wait_ms = waiting.ready(core) ? 0 : request.wait_ms();
    if (*wait_ms == 0) reply = core.operators().WatchJob(request);
  };
  if (!loop_->RunOrWait(watch, waiting)) done(std::move(reply));
}

void RequestIntake::CheckpointJob(const CheckpointJobRequest* request,
                                  Done<CheckpointJobReply> done, const std::string& caller) {
  const std::string job = request->job_id();
  absl::StatusOr<CheckpointJobReply> reply = SchedulerLoop::NoMemory();
  uint64_t number = 0;
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.key = WaitKey::Status(job);
  // The number is known only when the call begins to wait.
  const auto asked = std::make_shared<uint64_t>(request->number());
  waiting.ready = [job, asked](SchedulerCore& core) {
    return core.operators().CheckpointOver(job, *asked);
  };
  waiting.finish = [loop = loop_, job, asked, done](SchedulerCore& core, absl::Time now) -> Answer {
    return [loop, done, answer = core.operators().CheckpointJob(job, *asked, now)]() mutable {
      loop->WhenKept(AnswerWith(std::move(answer), done), /*confirm=*/true);
    };
  };
  const auto ask = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = core.operators().CheckpointJob(job, request->number(), now);
    number = reply.ok() ? reply->number() : 0;
    // The waiting call reads it: a repeated request then follows this checkpoint instead of asking
    // for another one.
    *asked = number;
    *wait_ms = reply.ok() && !reply->done() ? request->wait_ms() : 0;
  };
  const bool waits = loop_->RunOrWait(ask, std::move(waiting));
  if (request->number() == 0 && number != 0)
    log_(absl::StrCat("job ", job, ": checkpoint ", number, " asked for"));
  if (!waits) loop_->WhenKept(AnswerWith(std::move(reply), done), /*confirm=*/true);
}

void RequestIntake::DeleteRows(const DeleteRowsRequest* request, Done<DeleteRowsReply> done,
                               const std::string& caller) {
  const std::string job = request->job_id();
  // Without the loop's lock: there may be many.
  std::vector<uint64_t> keys(request->keys().begin(), request->keys().end());
  std::sort(keys.begin(), keys.end());
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  absl::StatusOr<DeleteRowsReply> reply = SchedulerLoop::NoMemory();
  WaitingCalls::Call waiting;
  waiting.caller = caller;
  waiting.key = WaitKey::Status(job);
  // The number is known only when the call begins to wait.
  const auto asked = std::make_shared<uint64_t>(request->deletion());
  waiting.ready = [job, asked](SchedulerCore& core) {
    const auto outcome = core.operators().DeletionOutcome(job, *asked);
    return !outcome.ok() || outcome->done();
  };
  waiting.finish = [loop = loop_, job, asked, done](SchedulerCore& core, absl::Time) -> Answer {
    return [loop, done, answer = core.operators().DeletionOutcome(job, *asked)]() mutable {
      loop->WhenKept(AnswerWith(std::move(answer), done), /*confirm=*/true);
    };
  };
  const auto ask = [&](SchedulerCore& core, absl::Time now, uint32_t* wait_ms) {
    reply = *asked != 0 ? core.operators().DeletionOutcome(job, *asked)
                        : core.operators().DeleteRows(job, request->table(), std::move(keys), now);
    if (reply.ok()) *asked = reply->deletion();
    *wait_ms = reply.ok() && !reply->done() ? request->wait_ms() : 0;
  };
  if (!loop_->RunOrWait(ask, std::move(waiting)))
    loop_->WhenKept(AnswerWith(std::move(reply), done), /*confirm=*/true);
}

void RequestIntake::CancelJob(const CancelJobRequest& request, DoneStatus done) {
  caller_log_.Say(absl::StrCat("job ", request.job_id(), ": cancel"));
  absl::Status status = SchedulerLoop::NoMemory();
  loop_->Run([&](SchedulerCore& core, absl::Time now) {
    // The reason is shown on terminals, and comes from outside.
    status = core.operators().CancelJob(request.job_id(), now, PrintableLine(request.failure()));
  });
  // The end is kept before it is answered.
  loop_->WhenTried(AnswerWith(std::move(status), std::move(done)));
}

void RequestIntake::ScaleJob(const ScaleJobRequest& request, DoneStatus done) {
  caller_log_.Say(
      absl::StrCat("job ", request.job_id(), ": scale to ", request.worker_num(), " workers"));
  absl::Status status = SchedulerLoop::NoMemory();
  loop_->Run([&](SchedulerCore& core, absl::Time now) {
    status = core.operators().ScaleJob(request.job_id(), request.worker_num(), now);
  });
  // A newer scheduler does not know of the request.
  loop_->WhenTried(AnswerWith(std::move(status), std::move(done)));
}

void RequestIntake::DrainPserver(const DrainPserverRequest& request, Done<DrainPserverReply> done) {
  absl::StatusOr<DrainPserverReply> reply = SchedulerLoop::NoMemory();
  loop_->Run([&](SchedulerCore& core, absl::Time now) {
    reply = core.operators().DrainPserver(request, now);
  });
  LogDrain(request, reply);
  // The mark is kept before it is answered.
  loop_->WhenTried(AnswerWith(std::move(reply), std::move(done)));
}

void RequestIntake::LogDrain(const DrainPserverRequest& request,
                             const absl::StatusOr<DrainPserverReply>& reply) {
  // The call is repeated to learn how far it is, so only its ends are logged.
  if (reply.ok() && !reply->jobs().empty() && reply->failure().empty()) return;
  const std::string end = !reply.ok()                ? std::string(reply.status().message())
                          : reply->failure().empty() ? "no job has shards there"
                                                     : reply->failure();
  caller_log_.Say(absl::StrCat("pserver ", request.rank(), ": drain",
                               request.cancel() ? " cancelled" : "", ": ", end));
}

void RequestIntake::Shutdown(DoneStatus done) {
  // Before the members are told to stop: they may be those of a newer scheduler.
  loop_->WhenTried([loop = loop_, log = log_, done = std::move(done)](const absl::Status& kept) {
    if (!kept.ok()) return done(kept);
    bool begins = false;
    loop->Run([&](SchedulerCore& core, absl::Time now) {
      begins = !core.shutting_down();
      core.operators().Shutdown(now);
    });
    if (begins) log("shutting down");
    done(absl::OkStatus());
  });
}

}  // namespace sluice
