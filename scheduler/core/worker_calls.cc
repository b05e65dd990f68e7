#include "scheduler/core/worker_calls.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/security/job_passes.h"
#include "common/security/refusal_reason.h"
#include "scheduler/registry/job_status.h"

namespace sluice {

template <typename Request>
absl::StatusOr<WorkerCalls::Rank> WorkerCalls::FindRank(const Request& request) const {
  const std::string& job_id = request.job_id();
  const uint32_t rank = request.rank();
  Job* job = parts_->jobs.Find(job_id);
  if (job == nullptr || job->archived())
    return absl::NotFoundError(absl::StrCat("no job ", job_id));
  if (job->state() == JOB_RECOVERING && !job->over()) {
    return absl::AbortedError(absl::StrCat("rank ", rank, " of job ", job_id,
                                           " is withdrawn: the job recovers from a loss"));
  }
  // The number comes from the caller, and is an index below.
  if (rank >= job->ranks.slots().size()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "job ", job_id, " has no rank ", rank, ": it has ", job->ranks.slots().size(), " ranks"));
  }
  RankSlot* slot = &job->ranks.slots()[rank];
  if (slot->incarnation() != request.incarnation()) {
    absl::Status fenced = absl::AbortedError(
        absl::StrCat("incarnation ", request.incarnation(), " of rank ", rank, " of job ", job_id,
                     " is fenced: ", slot->incarnation(), " serves it now"));
    // An earlier life may have called in good faith. A later one was never assigned to anybody.
    const bool early = request.incarnation() < slot->incarnation();
    return early ? fenced : Because(RefusalReason::kPass, std::move(fenced));
  }
  const JobPasses passes(JobPassKey(parts_->options().pass_key, job->spec().instance()));
  // Last, so that a worker that was replaced hears that and not that its pass is wrong.
  SLUICE_RETURN_IF_ERROR(passes.CheckWorker(rank, request.incarnation(), request.pass()));
  return Rank{job, slot};
}

absl::StatusOr<NextPhaseReply> WorkerCalls::NextPhase(const NextPhaseRequest& request,
                                                      absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const Rank rank, FindRank(request));
  Job* const job = rank.job;
  // Before the report, which may end the phase: who follows the job then sees its steps first.
  if (request.losses_size() > 0)
    parts_->lifecycle.TakeLosses(job, request.rank(), request.losses(), now);
  SLUICE_RETURN_IF_ERROR(
      parts_->lifecycle.TakePhaseReport(job, request.rank(), request.report(), now));
  NextPhaseReply reply;
  if (job->over()) {
    reply.set_ready(true);
    reply.mutable_phase()->set_kind(Phase::FINISH);
    if (job->run()) reply.mutable_phase()->set_number(job->run()->phases().current().number());
    const JobState outcome = job->course.outcome();
    if (outcome != JOB_DONE) {
      const char* const how = outcome == JOB_CANCELLED ? "been cancelled" : "failed";
      reply.mutable_phase()->set_failure(absl::StrCat(how, ": ", job->course.message()));
    }
    // The rank has its last answer. Its worker is free as soon as it reports that it runs nothing.
    parts_->lifecycle.TellEnd(rank.slot);
  } else if (PhaseReady(request)) {
    reply.set_ready(true);
    *reply.mutable_phase() = job->run()->PhaseOf(request.rank());
  } else if (job->run()) {
    reply.set_waiting_for(
        job->finishing() ? "the job's last reports"
                         : DescribeMissing(*job, job->run()->phases().Missing(), parts_->members));
  }
  return reply;
}

bool WorkerCalls::PhaseReady(const NextPhaseRequest& request) {
  const auto rank = FindRank(request);
  // Errors and ends are answers too. The call must not wait for them.
  if (!rank.ok() || rank->job->over()) return true;
  const Job& job = *rank->job;
  return job.run() && !job.finishing() && job.run()->PhaseReady(request.rank());
}

absl::StatusOr<NextTaskReply> WorkerCalls::NextTask(const NextTaskRequest& request,
                                                    absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const Rank rank, FindRank(request));
  Job* const job = rank.job;
  if (job->over()) return absl::CancelledError(absl::StrCat("job ", job->id(), " is over"));
  if (!job->run()) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job->id(), " has not started yet"));
  }
  return parts_->lifecycle.NextTask(job, request, now);
}

absl::StatusOr<GetRouteReply> WorkerCalls::GetRoute(const GetRouteRequest& request) {
  const Job* job = parts_->jobs.Find(request.job_id());
  if (job == nullptr || job->archived())
    return absl::NotFoundError(absl::StrCat("no route of job ", request.job_id()));
  // The pass alone decides: a rank that a recovery has withdrawn may still look for its pservers.
  // Without it, FindRank says what has become of the rank.
  const JobPasses passes(JobPassKey(parts_->options().pass_key, job->spec().instance()));
  if (!passes.CheckWorker(request.rank(), request.incarnation(), request.pass()).ok())
    return FindRank(request).status();
  GetRouteReply reply;
  *reply.mutable_route() = job->spec().route();
  return reply;
}

absl::StatusOr<GatherReply> WorkerCalls::Gather(const GatherRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const Rank rank, FindRank(request));
  Job* const job = rank.job;
  if (job->over()) return absl::CancelledError(absl::StrCat("job ", job->id(), " is over"));
  GatherReply reply;
  if (!job->run()) {
    reply.set_waiting_for("the start of the job");
    return reply;
  }
  const Phase& phase = job->run()->phases().current();
  // A border at the end of an epoch belongs to its phase. So an epoch is not over before all ranks
  // have made their calls there, and a rank that is lost there is replaced before it.
  const bool there = phase.kind() == Phase::TRAIN && phase.epoch() + 1 == request.epochs_done();
  if (request.epochs_done() > 0 && !there) {
    return absl::FailedPreconditionError(
        absl::StrCat(request.what(), ": rank ", request.rank(), " is at the end of epoch ",
                     request.epochs_done(), ", and job ", job->id(), " is not"));
  }
  const auto workers = static_cast<uint32_t>(job->ranks.slots().size());
  const absl::StatusOr<bool> over = job->gathers.Take(request, workers);
  if (over.ok() && *over) parts_->effects.records()->Gathered(job->gathers.RecordOf(request));
  if (!over.ok() || *over) parts_->effects.PhaseChanged(*job);
  SLUICE_RETURN_IF_ERROR(over.status());
  SLUICE_ASSIGN_OR_RETURN(const std::vector<std::string>* const given, job->gathers.Find(request));
  if (given != nullptr) {
    reply.set_ready(true);
    reply.mutable_data()->Assign(given->begin(), given->end());
    return reply;
  }
  const std::vector<uint32_t> missing = job->gathers.Missing(request);
  for (const uint32_t other : missing) {
    if (there && job->run()->phases().Ended(other)) return job->gathers.LeftBy(other, request);
  }
  reply.set_waiting_for(DescribeRanks(*job, missing, parts_->members));
  return reply;
}

bool WorkerCalls::GatherReady(const GatherRequest& request) {
  const auto rank = FindRank(request);
  if (!rank.ok() || rank->job->over()) return true;
  const auto given = rank->job->gathers.Find(request);
  return !given.ok() || *given != nullptr;
}

absl::Status WorkerCalls::FailJob(const FailJobRequest& request, absl::Time now) {
  SLUICE_RETURN_IF_ERROR(parts_->CheckSecret(request.member_id(), request.secret()));
  SLUICE_ASSIGN_OR_RETURN(const Member* member, parts_->members.Find(request.member_id()));
  Job* job = parts_->jobs.Find(request.job_id());
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.job_id()));
  if (!Serves(*job, *member)) {
    return absl::FailedPreconditionError(
        absl::StrCat(DescribeMember(*member), " does not serve job ", job->id()));
  }
  // An error that a rank saw while a member was lost is no reason to end the job. No loss explains
  // the failure of a process itself, such as an exception of its program; it comes without an
  // incarnation.
  const bool of_process = member->self.role() == ROLE_WORKER && request.incarnation() == 0;
  const RankSlot* const slot = job->ranks.SlotOf(member->id);
  const bool of_slot =
      slot == nullptr || (slot->serving() && slot->incarnation() == request.incarnation());
  if (!job->over() && !of_process && (job->state() == JOB_RECOVERING || !of_slot)) {
    return absl::FailedPreconditionError(
        absl::StrCat(DescribeMember(*member), " serves no rank of job ", job->id(), " at present"));
  }
  if (request.has_progress() && slot != nullptr)
    parts_->lifecycle.TakeLastProgress(member->id, request.progress(), *job);
  parts_->lifecycle.End(
      job, JOB_FAILED,
      absl::StrCat(DescribeMember(*member), " of job ", job->id(), ": ", request.message()), now);
  parts_->Schedule(now);
  return absl::OkStatus();
}

absl::Status WorkerCalls::EndJob(const EndJobRequest& request, absl::Time now) {
  SLUICE_RETURN_IF_ERROR(parts_->CheckSecret(request.member_id(), request.secret()));
  SLUICE_ASSIGN_OR_RETURN(const Member* member, parts_->members.Find(request.member_id()));
  Job* const job = parts_->jobs.Find(request.job_id());
  if (job == nullptr || job->archived())
    return absl::NotFoundError(absl::StrCat("no job ", request.job_id()));
  // Its own answer may have been lost, or another rank's call came first.
  if (job->over()) return absl::OkStatus();
  const RankSlot* const slot = job->ranks.SlotOf(member->id);
  if (slot == nullptr || !slot->serving() || slot->incarnation() != request.incarnation() ||
      *job->ranks.RankOf(member->id) != request.rank()) {
    return absl::AbortedError(absl::StrCat(DescribeMember(*member), " does not serve rank ",
                                           request.rank(), " of job ", job->id(), " at present"));
  }
  if (request.cancels()) {
    parts_->lifecycle.End(
        job, JOB_CANCELLED,
        absl::StrCat("the program of ", DescribeMember(*member), " was interrupted"), now);
    parts_->Schedule(now);
    return absl::OkStatus();
  }
  if (job->state() != JOB_RUNNING || !job->run())
    return absl::AbortedError(absl::StrCat("job ", job->id(), " does not run at present"));
  EarlyEnd end;
  end.set_last_step(request.last_step());
  return parts_->lifecycle.EndEarly(job, end, now);
}

}  // namespace sluice
