#include "scheduler/core/operator_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/security/refusal_reason.h"
#include "scheduler/registry/job_records.h"
#include "scheduler/registry/job_status.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<Job>> OperatorCalls::PrepareJob(
    const JobConfig& config, const std::vector<TableConfig>& tables,
    const std::string& default_output, uint64_t first_number, std::vector<std::string> warnings,
    std::unique_ptr<const ResumePoint> resume) {
  if (parts_->shutting_down()) return absl::FailedPreconditionError("the cluster is shutting down");
  return parts_->admission.Prepare(config, tables, default_output, first_number,
                                   std::move(warnings), std::move(resume));
}

std::vector<MetaStore::Write> OperatorCalls::RecordsOf(const Job& job) const {
  // With the job itself, in one commit: a later scheduler must not give the number again.
  NextRecord next = parts_->admission.NextAfter(job);
  next.set_cluster(parts_->options().cluster);
  next.set_pass_key(parts_->options().pass_key);
  return {WriteOf(RecordOf(job, parts_->effects.records()->clock())), WriteOf(ConfigOf(job)),
          WriteOf(next)};
}

absl::StatusOr<std::string> OperatorCalls::AddJob(std::unique_ptr<Job> job, absl::Time now) {
  if (parts_->shutting_down()) return absl::FailedPreconditionError("the cluster is shutting down");
  // Schedule may end the job, but does not forget it.
  const Job* const added = parts_->admission.Add(std::move(job));
  parts_->Schedule(now);
  return added->id();
}

absl::Status OperatorCalls::CheckOutputs(const JobConfig& config) const {
  return parts_->jobs.CheckOutputs(config);
}

std::string OperatorCalls::JobOfRequest(const std::string& request_id) const {
  // Few jobs are kept, and submissions are rare. An index would cost more than it saves.
  for (const auto& job : parts_->jobs.all()) {
    if (!request_id.empty() && job->submission().request_id == request_id) return job->id();
  }
  return "";
}

absl::StatusOr<Job*> OperatorCalls::FindForOperator(const std::string& job_id) const {
  Job* job = parts_->jobs.Find(job_id);
  if (job != nullptr) return job;
  return absl::NotFoundError(
      absl::StrCat("no job ", job_id, "; `sluice status` lists the jobs of this cluster"));
}

absl::StatusOr<WatchJobReply> OperatorCalls::WatchJob(const WatchJobRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const Job* job, FindForOperator(request.job_id()));
  WatchJobReply reply;
  std::optional<uint32_t> seen_epochs;
  if (request.has_seen_epochs()) seen_epochs = request.seen_epochs();
  *reply.mutable_status() = MakeJobStatus(*job, parts_->members, seen_epochs);
  if (job->attempt.steps()) job->attempt.steps()->AddTo(request.seen_steps(), &reply);
  return reply;
}

absl::StatusOr<uint64_t> OperatorCalls::JobVersion(const std::string& job_id) {
  const Job* job = parts_->jobs.Find(job_id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job_id));
  return job->status_version();
}

absl::StatusOr<CheckpointJobReply> OperatorCalls::CheckpointJob(const std::string& job_id,
                                                                uint64_t number, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(Job* const job, FindForOperator(job_id));
  return parts_->lifecycle.Checkpoint(job, number, now);
}

bool OperatorCalls::CheckpointOver(const std::string& job_id, uint64_t number) {
  const Job* job = parts_->jobs.Find(job_id);
  return job == nullptr || job->over() || !job->checkpoints() ||
         job->checkpoints()->Followed(number) <= job->checkpoints()->over();
}

absl::StatusOr<DeleteRowsReply> OperatorCalls::DeleteRows(const std::string& job_id,
                                                          const std::string& table,
                                                          std::vector<uint64_t> keys,
                                                          absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(Job* const job, FindForOperator(job_id));
  return parts_->lifecycle.DeleteRows(job, table, std::move(keys), now);
}

absl::StatusOr<DeleteRowsReply> OperatorCalls::DeletionOutcome(const std::string& job_id,
                                                               uint64_t deletion) {
  SLUICE_ASSIGN_OR_RETURN(const Job* const job, FindForOperator(job_id));
  return DeletionLifecycle::Outcome(*job, deletion);
}

absl::Status OperatorCalls::CancelJob(const std::string& job_id, absl::Time now,
                                      const std::string& failure) {
  SLUICE_ASSIGN_OR_RETURN(Job* const job, FindForOperator(job_id));
  // The call may be repeated while the job is being cancelled.
  const bool cancelling = job->course.outcome() == JOB_CANCELLED && job->state() != JOB_CANCELLED;
  if (job->over() && !cancelling) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job_id, " has ended already (", job->course.result().status(), ")",
        job->course.away().empty() ? "" : "; its result is written when its place answers"));
  }
  if (failure.empty()) {
    parts_->lifecycle.End(job, JOB_CANCELLED, "cancelled by the operator", now);
  } else {
    parts_->lifecycle.End(job, JOB_FAILED, failure, now);
  }
  parts_->Schedule(now);
  return absl::OkStatus();
}

absl::Status OperatorCalls::ScaleJob(const std::string& job_id, uint32_t worker_num,
                                     absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(Job* const job, FindForOperator(job_id));
  SLUICE_RETURN_IF_ERROR(CheckStore());
  SLUICE_RETURN_IF_ERROR(parts_->lifecycle.Scale(job, worker_num, now));
  // A request that is withdrawn gives workers back.
  parts_->Schedule(now);
  return absl::OkStatus();
}

absl::StatusOr<DrainPserverReply> OperatorCalls::DrainPserver(const DrainPserverRequest& request,
                                                              absl::Time now) {
  if (parts_->shutting_down()) return absl::FailedPreconditionError("the cluster is shutting down");
  if (!request.cancel()) SLUICE_RETURN_IF_ERROR(CheckStore());
  const uint32_t rank = request.rank();
  if (rank >= parts_->options().pserver_num) {
    return absl::NotFoundError(absl::StrCat("no pserver ", rank, ": the cluster has ",
                                            parts_->options().pserver_num, "; ranks begin at 0"));
  }
  // A pserver may drain only itself. A call without member_id is an operator's.
  SLUICE_RETURN_IF_ERROR(CheckDrainsItself(request));
  const std::vector<const Member*> usable = parts_->members.UsablePservers();
  const bool others = std::any_of(usable.begin(), usable.end(), [rank](const Member* pserver) {
    return pserver->self.rank() != rank;
  });
  // Nothing remains to be done for one that is draining and has no shards any more.
  const bool done =
      parts_->members.draining().count(rank) > 0 && parts_->lifecycle.JobsOn(rank).empty();
  if (!request.cancel() && !others && !done) {
    return absl::FailedPreconditionError(
        absl::StrCat("pserver ", rank, " cannot be drained: no other pserver of the cluster is ",
                     "alive and not draining; start one, or cancel the draining of another"));
  }
  if (request.cancel()) {
    parts_->members.CancelDrain(rank);
  } else {
    parts_->members.Drain(rank, {/*of_process=*/request.member_id() != 0});
  }
  // The mark outlives this scheduler.
  parts_->KeepDraining();
  // A pserver that repeats its call does not ask again.
  if (request.member_id() == 0) parts_->lifecycle.DrainAgain(rank);
  parts_->lifecycle.DrainingChanged(now);
  // Queued jobs may start without this pserver now.
  parts_->queue.MembersChanged();
  parts_->Schedule(now);
  DrainPserverReply reply;
  for (std::string& job : parts_->lifecycle.JobsOn(rank)) reply.add_jobs(std::move(job));
  reply.set_failure(parts_->lifecycle.WhyAllStay(rank));
  return reply;
}

absl::Status OperatorCalls::CheckStore() const {
  const std::string& refused = parts_->effects.records()->refused();
  if (refused.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "no other attempt of a job can begin while the scheduler cannot keep its state: ", refused));
}

absl::Status OperatorCalls::CheckDrainsItself(const DrainPserverRequest& request) const {
  if (request.member_id() == 0) return absl::OkStatus();
  const Member* const holder = parts_->members.At(ROLE_PSERVER, request.rank());
  if (holder == nullptr || !holder->alive) {
    return absl::UnavailableError(
        absl::StrCat("pserver ", request.rank(), " is not registered with this scheduler"));
  }
  if (holder->id == request.member_id()) return parts_->CheckSecret(holder->id, request.secret());
  return Because(RefusalReason::kFenced,
                 absl::AbortedError(absl::StrCat("another process serves as ",
                                                 DescribeMember(*holder), "; it is not drained")));
}

ClusterStatus OperatorCalls::GetStatus(absl::Time now) {
  ClusterStatus status;
  status.set_name(parts_->options().cluster);
  status.set_uptime_s(absl::ToDoubleSeconds(now - started_));
  for (const Member* member : parts_->members.All()) {
    MemberStatus* one = status.add_members();
    *one = MakeMemberStatus(*member, now);
    const Job* job = member->job_id.empty() ? nullptr : parts_->jobs.Find(member->job_id);
    if (job == nullptr) continue;
    if (const auto rank = job->ranks.RankOf(member->id)) one->set_job_rank(*rank);
  }
  for (const auto& job : parts_->jobs.all())
    *status.add_jobs() = MakeJobStatus(*job, parts_->members);
  return status;
}

}  // namespace sluice
