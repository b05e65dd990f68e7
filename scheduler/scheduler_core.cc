#include "scheduler/scheduler_core.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

Membership::Options MembershipOptions(const SchedulerCore::Options& options) {
  Membership::Options membership;
  membership.pserver_num = options.pserver_num;
  membership.worker_num = options.worker_num;
  membership.lease = options.lease;
  membership.first_id = options.first_id;
  return membership;
}

RegisterReply Refusal(const Member& holder, absl::Time now) {
  RegisterReply reply;
  Incumbent* incumbent = reply.mutable_incumbent();
  incumbent->set_member_id(holder.id);
  incumbent->set_host(holder.self.host());
  incumbent->set_pid(holder.self.pid());
  incumbent->set_process_space(holder.self.process_space());
  incumbent->set_last_seen_s(absl::ToDoubleSeconds(now - holder.last_seen));
  return reply;
}

bool Serves(const Job& job, const Member& member) {
  return member.job_id == job.job_id ||
         std::count(job.pservers.begin(), job.pservers.end(), member.id) > 0;
}

}  // namespace

SchedulerCore::SchedulerCore(Options options, absl::Time now)
    : options_(std::move(options)), started_(now), members_(MembershipOptions(options_)) {}

// ------------------------------------------------------------------------------------- members

absl::StatusOr<RegisterReply> SchedulerCore::Register(const RegisterRequest& request,
                                                      absl::Time now) {
  if (shutting_down()) {
    return absl::FailedPreconditionError("the cluster is shutting down and takes no new members");
  }
  Member fenced;
  SLUICE_ASSIGN_OR_RETURN(const Member* member, members_.Register(request, now, &fenced));
  if (member == nullptr) return Refusal(*members_.At(request.role(), request.rank()), now);
  if (fenced.id != 0) OnMemberLost(fenced, now);
  schedule_due_ = true;
  RegisterReply reply;
  reply.set_member_id(member->id);
  reply.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  reply.set_heartbeat_ms(absl::ToInt64Milliseconds(options_.heartbeat));
  reply.set_cluster(options_.cluster);
  Schedule(now);
  return reply;
}

absl::StatusOr<PollReply> SchedulerCore::Poll(const PollRequest& request, absl::Time now) {
  NoticePause(now);
  SLUICE_ASSIGN_OR_RETURN(Member * member, members_.Find(request.member_id()));
  const bool was_free = IsFree(*member);
  members_.Report(request, now, member);
  if (IsFree(*member) != was_free) schedule_due_ = true;
  if (member->self.role() == ROLE_PSERVER) {
    TakeHosted(member, now);
  } else {
    TakeProgress(request, member, now);
  }
  TakeTraces(request, *member, now);
  TakeFreshness(*member, now);
  Schedule(now);
  return Desired(request.member_id(), request.seen_version());
}

void SchedulerCore::TakeHosted(Member* member, absl::Time now) {
  for (const auto& [job_id, hosted] : member->hosted) {
    Job* job = Find(job_id);
    if (job == nullptr || job->over() || HostedOf(*job, *member) == nullptr) continue;
    if (hosted.error().empty()) {
      CheckStarting(job, now);
      continue;
    }
    if (hosted.generation() != job->spec.route().generation()) continue;
    EndJob(job, JOB_FAILED,
           absl::StrCat(DescribeMember(*member), " of job ", job_id, ": ", hosted.error()), now);
  }
}

void SchedulerCore::TakeProgress(const PollRequest& request, Member* member, absl::Time now) {
  Job* job = member->job_id.empty() ? nullptr : Find(member->job_id);
  if (job == nullptr) return;
  const auto rank = job->rank_of.find(member->id);
  if (rank == job->rank_of.end()) return;
  RankSlot* const slot = &job->ranks[rank->second];
  if (slot->state == RankSlot::kReleased) return;
  const WorkerProgress& progress = request.progress();
  const bool runs = progress.job_id() == job->job_id;
  if (slot->state == RankSlot::kWithdrawn && !runs &&
      member->seen_version >= slot->withdrawn_version) {
    Release(job, slot);
    DropWhenReleased(job, now);
    return;
  }
  if (job->over() || !job->run) return;
  if (!runs) return CheckServing(job, *member, slot, now);
  slot->reported = true;
  slot->absent_since = absl::InfiniteFuture();
  TakeLosses(progress, job, slot, now);
  // Told by Tick: a job of many workers would else wake its watchers with every report.
  job->progress_untold = true;
}

void SchedulerCore::TakeLosses(const WorkerProgress& progress, Job* job, RankSlot* slot,
                               absl::Time now) {
  for (const StepLoss& loss : progress.losses()) {
    // A report without an answer is sent again, also when only the answer was lost.
    if (loss.step() <= slot->newest_loss_step) continue;
    slot->newest_loss_step = loss.step();
    job->curves->Add(loss);
    job->recent_steps.push_back(loss);
    job->recent_steps.back().set_rank(progress.rank());
    if (job->recent_steps.size() > kRecentSteps) job->recent_steps.pop_front();
    ++job->steps_reported;
  }
  Emit(*job, OutputAction::kScalars, job->curves->Take(/*all=*/false), now);
}

void SchedulerCore::TakeFreshness(const Member& member, absl::Time now) {
  const auto asked_by = asked_by_.find(member.id);
  if (asked_by == asked_by_.end()) return;
  std::vector<std::string> still, fresh;
  for (std::string& job_id : asked_by->second) {
    Job* job = Find(job_id);
    if (job == nullptr) continue;
    const auto asked = job->asked.find(member.id);
    if (asked == job->asked.end()) continue;
    const bool seen = member.seen_version >= asked->second;
    if (seen) job->asked.erase(asked);
    (seen ? fresh : still).push_back(std::move(job_id));
  }
  if (still.empty()) {
    asked_by_.erase(asked_by);
  } else {
    asked_by->second = std::move(still);
  }
  for (const std::string& job_id : fresh) CheckFinishing(Find(job_id), now);
}

void SchedulerCore::TakeTraces(const PollRequest& request, const Member& member, absl::Time now) {
  for (const TraceBatch& batch : request.traces()) {
    const Job* job = Find(batch.job_id());
    if (job == nullptr || job->over() || job->config.trace_file().empty()) continue;
    if (!Serves(*job, member)) continue;
    OutputAction action;
    action.kind = OutputAction::kTrace;
    action.job_id = job->job_id;
    action.time = now;
    action.trace = {member.id, member.self, now, batch};
    actions_.push_back(std::move(action));
  }
}

void SchedulerCore::CheckServing(Job* job, const Member& member, RankSlot* slot, absl::Time now) {
  if (job->finishing() || member.seen_version < slot->told_version) return;
  slot->absent_since = std::min(slot->absent_since, now);
  // A start takes a moment, and one report may be older than it looks: they can overtake each
  // other.
  const absl::Duration grace = slot->reported ? 2 * options_.heartbeat : options_.lease;
  if (Since(slot->absent_since, now) < grace) return;
  EndJob(job, JOB_FAILED,
         absl::StrCat(DescribeMember(member), " of job ", job->job_id, ": it ",
                      slot->reported ? "no longer runs" : "does not run",
                      " the job, and its reason did not arrive; see its log"),
         now);
}

absl::StatusOr<uint64_t> SchedulerCore::DesiredVersion(uint64_t member_id) {
  SLUICE_ASSIGN_OR_RETURN(const Member* member, members_.Find(member_id));
  return member->version;
}

absl::StatusOr<PollReply> SchedulerCore::Desired(uint64_t member_id, uint64_t seen_version) {
  SLUICE_ASSIGN_OR_RETURN(const Member* member, members_.Find(member_id));
  const bool pserver = member->self.role() == ROLE_PSERVER;
  PollReply reply;
  reply.set_version(member->version);
  reply.set_stop(shutting_down() && (!pserver || pservers_stop_));
  if (member->version == seen_version) return reply;
  for (const Job* job : ServedBy(*member)) {
    if (pserver) {
      if (job->hosted) *reply.add_host() = job->spec;
      continue;
    }
    if (job->state == JOB_STARTING) continue;
    const uint32_t rank = job->rank_of.at(member_id);
    if (job->ranks[rank].state != RankSlot::kServing) continue;
    WorkerAssignment* assignment = reply.mutable_assignment();
    *assignment->mutable_job() = job->spec;
    assignment->set_rank(rank);
    assignment->set_incarnation(job->ranks[rank].incarnation);
  }
  return reply;
}

void SchedulerCore::Leave(const LeaveRequest& request, absl::Time now) {
  absl::StatusOr<Member*> member = members_.Find(request.member_id());
  if (!member.ok()) return;  // gone already
  members_.MarkGone(*member, absl::StrCat("has left: ", request.reason()));
  (*member)->left = true;
  OnMemberLost(**member, now);
  Schedule(now);
  StopMembers(now);
}

void SchedulerCore::MemberEnded(const MemberEndedRequest& request, absl::Time now) {
  Member* member = members_.At(request.role(), request.rank());
  if (member == nullptr || !member->alive || member->self.pid() != request.pid() ||
      member->self.process_space() != request.process_space()) {
    return;
  }
  members_.MarkGone(member, request.reason());
  OnMemberLost(*member, now);
  Schedule(now);
  StopMembers(now);
}

std::vector<MemberEndedRequest> SchedulerCore::SilentMembers(const std::string& process_space,
                                                             absl::Time now) {
  std::vector<MemberEndedRequest> silent;
  if (process_space.empty()) return silent;
  for (const Member* member : members_.All()) {
    if (!member->alive || member->self.process_space() != process_space) continue;
    if (now - member->last_seen < 2 * options_.heartbeat) continue;
    MemberEndedRequest& one = silent.emplace_back();
    one.set_role(member->self.role());
    one.set_rank(member->self.rank());
    one.set_pid(member->self.pid());
    one.set_process_space(process_space);
  }
  return silent;
}

void SchedulerCore::OnMemberLost(const Member& member, absl::Time now) {
  changed_.push_back(WaitKey::Desired(member.id));
  schedule_due_ = true;
  asked_by_.erase(member.id);
  for (Job* job : ServedBy(member)) {
    job->asked.erase(member.id);
    if (const auto rank = job->rank_of.find(member.id); rank != job->rank_of.end()) {
      Release(job, &job->ranks[rank->second]);
    }
    // With all phases done the job has all it needs.
    if (!job->over() && !job->finishing()) {
      EndJob(job, JOB_FAILED,
             absl::StrCat(DescribeMember(member), " of job ", job->job_id, ": ", member.why_gone),
             now);
    }
    CheckFinishing(job, now);
    DropWhenReleased(job, now);
  }
}

std::vector<Job*> SchedulerCore::ServedBy(const Member& member) {
  std::vector<Job*> jobs;
  if (member.self.role() == ROLE_PSERVER) {
    for (Job* job : active_) {
      if (std::count(job->pservers.begin(), job->pservers.end(), member.id) > 0)
        jobs.push_back(job);
    }
    return jobs;
  }
  Job* job = member.job_id.empty() ? nullptr : Find(member.job_id);
  if (job != nullptr && job->rank_of.count(member.id) > 0) jobs.push_back(job);
  return jobs;
}

void SchedulerCore::Touch(Member* member) {
  ++member->version;
  changed_.push_back(WaitKey::Desired(member->id));
}

void SchedulerCore::NoteStatus(Job* job) {
  ++job->status_version;
  job->progress_untold = false;
  changed_.push_back(WaitKey::Status(job->job_id));
}

// ---------------------------------------------------------------------------- workers of a job

Job* SchedulerCore::Find(const std::string& job_id) {
  const auto it = by_id_.find(job_id);
  return it == by_id_.end() ? nullptr : it->second;
}

template <class Request>
absl::StatusOr<RankSlot*> SchedulerCore::FindRank(const Request& request, Job** job) {
  *job = Find(request.job_id());
  if (*job == nullptr || (*job)->archived)
    return absl::NotFoundError(absl::StrCat("no job ", request.job_id()));
  if (request.rank() >= (*job)->ranks.size()) {
    return absl::InvalidArgumentError(absl::StrCat("job ", request.job_id(), " has no rank ",
                                                   request.rank(), ", it has ",
                                                   (*job)->ranks.size()));
  }
  RankSlot* slot = &(*job)->ranks[request.rank()];
  if (slot->incarnation != request.incarnation()) {
    return absl::AbortedError(absl::StrCat("incarnation ", request.incarnation(), " of rank ",
                                           request.rank(), " of job ", request.job_id(),
                                           " is fenced: ", slot->incarnation, " serves it now"));
  }
  return slot;
}

absl::StatusOr<NextPhaseReply> SchedulerCore::NextPhase(const NextPhaseRequest& request,
                                                        absl::Time now) {
  Job* job = nullptr;
  SLUICE_ASSIGN_OR_RETURN(RankSlot * slot, FindRank(request, &job));
  NextPhaseReply reply;
  if (!job->over() && job->run) {
    const Phase::Kind before = job->run->phases().current().kind();
    SLUICE_ASSIGN_OR_RETURN(const bool advanced,
                            job->run->TakeReport(request.rank(), request.report(), now));
    if (!job->run->failure().ok()) {
      EndJob(job, JOB_FAILED, std::string(job->run->failure().message()), now);
    } else if (advanced) {
      const bool last_spans = job->finishing() && !job->config.trace_file().empty();
      if (before == Phase::TRAIN || last_spans) AskForReports(job);
      if (job->finishing()) job->finishing_since = now;
      Emit(*job, OutputAction::kScalars, job->run->TakeScalars(), now);
      NoteStatus(job);
      NotePhase(*job);
      CheckFinishing(job, now);
    }
  }
  if (job->over()) {
    reply.set_ready(true);
    reply.mutable_phase()->set_kind(Phase::FINISH);
    if (job->run) reply.mutable_phase()->set_number(job->run->phases().current().number());
    if (slot->state == RankSlot::kServing) Withdraw(slot);
  } else if (PhaseReady(request)) {
    reply.set_ready(true);
    *reply.mutable_phase() = job->run->phases().current();
  } else if (job->run) {
    const std::vector<uint32_t> missing = job->run->phases().Missing();
    reply.set_waiting_for(job->finishing() ? "the job's last reports"
                                           : DescribeMissing(*job, missing, &members_));
  }
  return reply;
}

bool SchedulerCore::PhaseReady(const NextPhaseRequest& request) {
  Job* job = nullptr;
  if (!FindRank(request, &job).ok() || job->over()) return true;
  return job->run && !job->finishing() && job->run->PhaseReady(request.rank());
}

absl::StatusOr<NextTaskReply> SchedulerCore::NextTask(const NextTaskRequest& request) {
  Job* job = nullptr;
  SLUICE_RETURN_IF_ERROR(FindRank(request, &job).status());
  if (job->over()) return absl::CancelledError(absl::StrCat("job ", job->job_id, " is over"));
  if (!job->run) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job->job_id, " has not started yet"));
  }
  return job->run->NextTask(request);
}

absl::StatusOr<GetRouteReply> SchedulerCore::GetRoute(const GetRouteRequest& request) {
  const Job* job = Find(request.job_id());
  if (job == nullptr || job->archived)
    return absl::NotFoundError(absl::StrCat("no route of job ", request.job_id()));
  GetRouteReply reply;
  *reply.mutable_route() = job->spec.route();
  return reply;
}

absl::Status SchedulerCore::FailJob(const FailJobRequest& request, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const Member* member, members_.Find(request.member_id()));
  Job* job = Find(request.job_id());
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.job_id()));
  if (!Serves(*job, *member)) {
    return absl::FailedPreconditionError(
        absl::StrCat(DescribeMember(*member), " does not serve job ", job->job_id));
  }
  EndJob(job, JOB_FAILED,
         absl::StrCat(DescribeMember(*member), " of job ", job->job_id, ": ", request.message()),
         now);
  Schedule(now);
  return absl::OkStatus();
}

// ----------------------------------------------------------------------------------- operators

absl::StatusOr<JobStatus> SchedulerCore::GetJob(const std::string& job_id) {
  const Job* job = Find(job_id);
  if (job == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no job ", job_id, "; `sluice status` lists the jobs of this cluster"));
  }
  return MakeJobStatus(*job, &members_);
}

absl::StatusOr<WatchJobReply> SchedulerCore::WatchJob(const WatchJobRequest& request) {
  WatchJobReply reply;
  SLUICE_ASSIGN_OR_RETURN(*reply.mutable_status(), GetJob(request.job_id()));
  AddSteps(*Find(request.job_id()), request.seen_steps(), &reply);
  return reply;
}

absl::StatusOr<uint64_t> SchedulerCore::JobVersion(const std::string& job_id) {
  const Job* job = Find(job_id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job_id));
  return job->status_version;
}

absl::Status SchedulerCore::CancelJob(const std::string& job_id, absl::Time now) {
  Job* job = Find(job_id);
  if (job == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("no job ", job_id, "; `sluice status` lists the jobs of this cluster"));
  }
  // While it is being cancelled the call may be repeated.
  const bool cancelling = job->outcome == JOB_CANCELLED && job->state != JOB_CANCELLED;
  if (job->over() && !cancelling) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " has ended already (", job->result.status(), ")"));
  }
  EndJob(job, JOB_CANCELLED, "cancelled by the operator", now);
  Schedule(now);
  return absl::OkStatus();
}

ClusterStatus SchedulerCore::GetStatus(absl::Time now) {
  ClusterStatus status;
  status.set_name(options_.cluster);
  status.set_uptime_s(absl::ToDoubleSeconds(now - started_));
  for (const Member* member : members_.All()) {
    MemberStatus* one = status.add_members();
    *one = MakeMemberStatus(*member, now);
    const Job* job = member->job_id.empty() ? nullptr : Find(member->job_id);
    if (job == nullptr) continue;
    const auto rank = job->rank_of.find(member->id);
    if (rank != job->rank_of.end()) one->set_job_rank(rank->second);
  }
  for (const auto& job : jobs_) *status.add_jobs() = MakeJobStatus(*job, &members_);
  return status;
}

std::string SchedulerCore::NotReady() {
  std::vector<std::string> missing = MissingPservers();
  for (uint32_t rank = 0; rank < options_.worker_num; ++rank) {
    const Member* member = members_.At(ROLE_WORKER, rank);
    if (member == nullptr || !member->alive) {
      missing.push_back(absl::StrCat("worker ", rank, " to register"));
    }
  }
  return absl::StrJoin(missing, ", ");
}

void SchedulerCore::Shutdown(absl::Time now) {
  if (shutting_down()) return;
  shutdown_at_ = now;
  for (const auto& job : jobs_) {
    if (!job->over()) EndJob(job.get(), JOB_CANCELLED, "the cluster was shut down", now);
  }
  for (Member* member : members_.All()) Touch(member);
  StopMembers(now);
}

void SchedulerCore::StopMembers(absl::Time now) {
  if (!shutting_down() || pservers_stop_) return;
  if (!members_.Alive(ROLE_WORKER).empty() && now < shutdown_at_ + options_.worker_stop) return;
  pservers_stop_ = true;
  for (Member* member : members_.Alive(ROLE_PSERVER)) Touch(member);
}

bool SchedulerCore::CanEnd(absl::Time now) {
  if (!shutting_down()) return false;
  if (now >= shutdown_at_ + options_.all_stop) return true;
  for (const Job* job : active_) {
    if (job->state != job->outcome) return false;
  }
  return members_.Alive(ROLE_WORKER).empty() && members_.Alive(ROLE_PSERVER).empty();
}

// ---------------------------------------------------------------------------------------- time

void SchedulerCore::NoticePause(absl::Time now) {
  // Longer than a tick comes late on a busy machine, shorter than a lease.
  const absl::Duration pause =
      std::clamp(options_.lease / 2, absl::Milliseconds(300), absl::Seconds(1));
  if (now - ticked_at_ < pause) return;
  resumed_at_ = now;
  members_.ForgiveSilence(now);
}

void SchedulerCore::Tick(absl::Time now) {
  NoticePause(now);
  ticked_at_ = now;
  for (const Member* member : members_.Expire(now)) OnMemberLost(*member, now);
  for (Job* job : active_) {
    if (job->progress_untold) NoteStatus(job);
    CheckStarting(job, now);
    CheckFinishing(job, now);
    DropWhenReleased(job, now);
  }
  schedule_due_ = true;  // the head may have waited for too long
  Schedule(now);
  StopMembers(now);
  Settle();
}

void SchedulerCore::OutputBegun(const std::string& job_id, absl::Time now) {
  Job* job = Find(job_id);
  if (job == nullptr) return;
  job->output_begun = true;
  CheckStarting(job, now);
}

void SchedulerCore::OutputFailed(const std::string& job_id, const absl::Status& why,
                                 absl::Time now) {
  Job* job = Find(job_id);
  if (job != nullptr) EndJob(job, JOB_FAILED, std::string(why.message()), now);
}

void SchedulerCore::OutputEnded(const std::string& job_id, const absl::Status& status) {
  Job* job = Find(job_id);
  if (job == nullptr || !job->over()) return;
  if (!status.ok()) {
    // Said already when the output folder was refused at the start.
    if (!absl::StrContains(job->message, status.message())) {
      absl::StrAppend(&job->message, job->message.empty() ? "" : "; ",
                      "the result could not be written: ", status.message());
    }
    job->outcome = JOB_FAILED;
    job->result.set_status("failed");
    job->result.clear_model_dir();
    job->result.clear_model_digest();
    job->result.set_message(job->message);
  }
  job->state = job->outcome;
  NoteStatus(job);
}

std::vector<OutputAction> SchedulerCore::TakeActions() { return std::exchange(actions_, {}); }

std::vector<WaitKey> SchedulerCore::TakeChanged() { return std::exchange(changed_, {}); }

}  // namespace sluice
