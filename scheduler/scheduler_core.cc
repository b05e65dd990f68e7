#include "scheduler/scheduler_core.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/security/job_passes.h"
#include "common/security/refusal_reason.h"
#include "scheduler/job_status.h"

namespace sluice {
namespace {

Membership::Options MembershipOptions(const SchedulerCore::Options& options) {
  Membership::Options membership;
  membership.pserver_num = options.pserver_num;
  membership.worker_num = options.worker_num;
  membership.pservers = options.pservers;
  membership.lease = options.lease;
  // Two reports may be late, and a member that lives connects again within about a second.
  membership.reconnect = std::max(2 * options.heartbeat, options.lease / 4);
  membership.first_id = options.first_id;
  return membership;
}

JobLifecycle::Options LifecycleOptions(const SchedulerCore::Options& options) {
  JobLifecycle::Options lifecycle;
  lifecycle.lease = options.lease;
  lifecycle.heartbeat = options.heartbeat;
  lifecycle.wait = options.wait;
  lifecycle.report_wait = options.report_wait;
  lifecycle.first_id = options.first_id;
  lifecycle.place = options.place;
  return lifecycle;
}

JobAdmission::Options AdmissionOptions(const SchedulerCore::Options& options) {
  JobAdmission::Options admission;
  admission.worker_num = options.worker_num;
  admission.wait = options.wait;
  admission.first_version = options.first_version;
  admission.next_number = std::max<uint64_t>(options.next.job_number(), 1);
  admission.next_order = std::max<uint64_t>(options.next.order(), 1);
  return admission;
}

RegisterReply Refusal(const Member& holder, absl::Time now) {
  RegisterReply reply;
  Incumbent* incumbent = reply.mutable_incumbent();
  incumbent->set_host(holder.self.host());
  incumbent->set_pid(holder.self.pid());
  incumbent->set_process_space(holder.self.process_space());
  incumbent->set_last_seen_s(absl::ToDoubleSeconds(now - holder.last_seen));
  return reply;
}

// Adds what the ranks need in order to meet, while they do (RankCards).
void AddCards(const Job& job, WorkerAssignment* assignment) {
  if (!job.run) return;
  const uint64_t generation = job.spec.route().generation();
  if (job.ranks.removal && job.ranks.removal->step > 0) {
    // They do not meet without the lost rank, but some may not know that the step has closed.
    assignment->mutable_group()->set_generation(generation);
    assignment->mutable_group()->set_closed_steps(job.ranks.removal->step);
  }
  if (!job.ranks.vacant.empty()) return;
  std::vector<std::string> cards = job.cards.Of(generation, job.ranks.slots);
  if (cards.empty()) return;
  RankGroupCards* const group = assignment->mutable_group();
  group->set_generation(generation);
  for (std::string& card : cards) group->add_cards(std::move(card));
  group->set_closed_steps(job.run->closed_steps());
}

// Adds what a member that serves the job shall do for it.
void AddDesired(Job* job, const Member& member, const std::string& pass_key, PollReply* reply) {
  const std::string job_key = JobPassKey(pass_key, job->spec.instance());
  if (member.self.role() == ROLE_PSERVER) {
    if (!job->hosted) return;
    JobSpec* host = reply->add_host();
    *host = job->spec;
    host->set_pass_key(job_key);
    CheckpointLifecycle::AddOrder(*job, reply);
    return;
  }
  const RankSlot& slot = *job->ranks.SlotOf(member.id);
  if (job->state == JOB_STARTING || job->state == JOB_RECOVERING || !slot.serving()) return;
  if (job->ranks.vacant.count(job->ranks.by_member.at(member.id)) > 0)
    return;  // the assignment comes later
  WorkerAssignment* assignment = reply->mutable_assignment();
  *assignment->mutable_job() = job->spec;
  assignment->set_rank(job->ranks.by_member.at(member.id));
  assignment->set_incarnation(slot.incarnation());
  assignment->set_rejoins(slot.rejoins());
  assignment->set_pass(JobPasses(job_key).OfWorker(assignment->rank(), slot.incarnation()));
  CheckpointLifecycle::AddAsked(*job, assignment);
  AddCards(*job, assignment);
}

}  // namespace

SchedulerCore::SchedulerCore(Options options, absl::Time now)
    : options_(std::move(options)),
      started_(now),
      effects_(options_.clock),
      members_(MembershipOptions(options_)),
      pauses_(options_.lease, now),
      lifecycle_(LifecycleOptions(options_),
                 {&members_, &queue_, &jobs_, &requests_, &pauses_, &effects_}),
      admission_(AdmissionOptions(options_),
                 {&members_, &queue_, &jobs_, &lifecycle_, &pauses_, &effects_}),
      kept_draining_(options_.draining.SerializeAsString()) {
  // The cluster may be smaller now. Some pserver must be left that jobs can use.
  uint32_t known = 0;
  for (const uint32_t rank : options_.draining.pservers()) known += rank < options_.pserver_num;
  if (known >= options_.pserver_num) return;
  for (const uint32_t rank : options_.draining.pservers()) {
    const auto& left = options_.draining.left();
    const bool has_left = std::count(left.begin(), left.end(), rank) > 0;
    if (rank < options_.pserver_num) members_.Drain(rank, {/*of_process=*/false, has_left});
  }
}

// ------------------------------------------------------------------------------------- members

absl::Status SchedulerCore::CheckSecret(uint64_t member_id, absl::string_view secret) const {
  const Member* const member = members_.ById(member_id);
  if (member == nullptr) return absl::OkStatus();
  if (SameSecret(MemberSecret(options_.pass_key, member_id, member->self.life()), secret))
    return absl::OkStatus();
  return absl::PermissionDeniedError(
      absl::StrCat("the caller does not have the secret of member ", member_id,
                   ", which only the process that has registered as this member got"));
}

RegisterRequest SchedulerCore::WithProvenHolds(const RegisterRequest& request,
                                               RegisterNotes* notes) const {
  RegisterRequest proven = request;
  proven.clear_holds();
  for (const HeldJob& held : request.holds()) {
    const JobPasses passes(JobPassKey(options_.pass_key, held.instance()));
    const absl::Status checked =
        request.role() == ROLE_PSERVER
            ? passes.CheckTables(request.rank(), held.pass())
            : passes.CheckWorker(held.rank(), held.incarnation(), held.pass());
    if (checked.ok()) {
      *proven.add_holds() = held;
    } else if (notes != nullptr) {
      notes->refused_holds.push_back(held.job_id());
    }
  }
  return proven;
}

absl::StatusOr<RegisterReply> SchedulerCore::Register(const RegisterRequest& asked, absl::Time now,
                                                      bool believed, RegisterNotes* notes) {
  if (notes != nullptr) *notes = {};
  if (shutting_down()) {
    return absl::FailedPreconditionError("the cluster is shutting down and takes no new members");
  }
  const RegisterRequest request = WithProvenHolds(asked, notes);
  const bool disbelieved = !believed && members_.SaysEnded(request);
  Member fenced;
  SLUICE_ASSIGN_OR_RETURN(Member * member, members_.Register(request, believed, now, &fenced));
  if (notes != nullptr) {
    notes->disbelieved = disbelieved;
    if (fenced.id != 0) notes->replaced = DescribeMember(fenced);
  }
  KeepDraining();
  if (member == nullptr) return Refusal(*members_.At(request.role(), request.rank()), now);
  if (fenced.id != 0) OnMemberLost(fenced, now);
  queue_.MembersChanged();
  RegisterReply reply;
  reply.set_member_id(member->id);
  reply.set_secret(MemberSecret(options_.pass_key, member->id, member->self.life()));
  reply.set_lease_ms(absl::ToInt64Milliseconds(options_.lease));
  reply.set_heartbeat_ms(absl::ToInt64Milliseconds(options_.heartbeat));
  reply.set_cluster(options_.cluster);
  reply.set_adopted(lifecycle_.TakeBack(member, now));
  Schedule(now);
  return reply;
}

absl::StatusOr<PollReply> SchedulerCore::Poll(const PollRequest& request, absl::Time now) {
  NoticePause(now);
  SLUICE_RETURN_IF_ERROR(CheckSecret(request.member_id(), request.secret()));
  SLUICE_ASSIGN_OR_RETURN(Member * member, members_.Find(request.member_id()));
  if (member->self.role() != ROLE_PSERVER && request.hosted_size() > 0)
    return absl::InvalidArgumentError("PollRequest.hosted: only pservers host jobs");
  const bool was_free = member->free();
  members_.Report(request, now, member);
  if (member->free() != was_free) queue_.MembersChanged();
  if (member->self.role() == ROLE_PSERVER) {
    TakeHosted(*member, now);
  } else if (Job* job = member->job_id.empty() ? nullptr : jobs_.Find(member->job_id)) {
    if (request.has_cut()) lifecycle_.TakeCut(*member, request.cut(), job, now);
    if (request.has_group()) lifecycle_.TakeGroup(*member, request.group(), job, now);
    lifecycle_.TakeProgress(*member, request.progress(), job, now);
  }
  TakeTraces(request, *member, now);
  TakeFreshness(*member, now);
  Schedule(now);
  return Desired(request.member_id(), request.seen_version());
}

void SchedulerCore::TakeHosted(const Member& pserver, absl::Time now) {
  for (const auto& [job_id, hosted] : pserver.hosted) {
    if (Job* job = jobs_.Find(job_id)) lifecycle_.TakeHosted(pserver, hosted, job, now);
  }
}

void SchedulerCore::TakeTraces(const PollRequest& request, const Member& member, absl::Time now) {
  for (const TraceBatch& batch : request.traces()) {
    const Job* job = jobs_.Find(batch.job_id());
    if (job == nullptr || job->over() || job->config.trace_file().empty()) continue;
    if (!Serves(*job, member)) continue;
    OutputAction action;
    action.kind = OutputAction::kTrace;
    action.job_id = job->job_id;
    action.time = now;
    action.trace = {member.id, member.self, now, batch};
    effects_.Write(std::move(action));
  }
}

void SchedulerCore::TakeFreshness(const Member& member, absl::Time now) {
  for (const std::string& job_id : requests_.Answer(member.id, member.seen_version)) {
    if (Job* job = jobs_.Find(job_id)) lifecycle_.CheckFinishing(job, now);
  }
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
  // A pserver's state holds all its jobs, so it is built only for a member that lacks it.
  if (member->version == seen_version) return reply;
  for (Job* job : jobs_.ServedBy(*member)) AddDesired(job, *member, options_.pass_key, &reply);
  return reply;
}

absl::Status SchedulerCore::Leave(const LeaveRequest& request, absl::Time now) {
  SLUICE_RETURN_IF_ERROR(CheckSecret(request.member_id(), request.secret()));
  absl::StatusOr<Member*> member = members_.Find(request.member_id());
  if (!member.ok()) return absl::OkStatus();  // gone already
  members_.MarkLeft(*member, request.reason());
  KeepDraining();
  OnMemberLost(**member, now);
  Schedule(now);
  StopPservers(now);
  return absl::OkStatus();
}

void SchedulerCore::ConnectionBroke(uint64_t member_id, absl::string_view secret, absl::Time now) {
  if (CheckSecret(member_id, secret).ok()) members_.NoteCutOff(member_id, now);
}

std::optional<std::pair<Role, uint32_t>> SchedulerCore::RoleAndRankOf(uint64_t member_id) const {
  const Member* const member = members_.ById(member_id);
  if (member == nullptr) return std::nullopt;
  return std::make_pair(member->self.role(), member->self.rank());
}

bool SchedulerCore::MemberEnded(const MemberEndedRequest& request, absl::Time now) {
  Member* member = members_.FindProcess(request);
  if (member == nullptr) return false;
  members_.MarkGone(member, request.reason());
  OnMemberLost(*member, now);
  Schedule(now);
  StopPservers(now);
  return true;
}

std::vector<MemberEndedRequest> SchedulerCore::SilentMembers(const std::string& process_space,
                                                             absl::Time now) {
  return members_.Silent(process_space, 2 * options_.heartbeat, now);
}

void SchedulerCore::OnMemberLost(const Member& member, absl::Time now) {
  effects_.MemberGone(member.id);
  queue_.MembersChanged();
  requests_.DropMember(member.id);
  for (Job* job : jobs_.ServedBy(member)) lifecycle_.MemberLost(job, member, now);
}

void SchedulerCore::Schedule(absl::Time now) {
  if (shutting_down()) return;
  lifecycle_.RecoverJobs(now);
  lifecycle_.FillVacancies(now);
  admission_.Schedule(now);
}

// ---------------------------------------------------------------------------- workers of a job

template <typename Request>
absl::StatusOr<SchedulerCore::Rank> SchedulerCore::FindRank(const Request& request) const {
  const std::string& job_id = request.job_id();
  const uint32_t rank = request.rank();
  Job* job = jobs_.Find(job_id);
  if (job == nullptr || job->archived) return absl::NotFoundError(absl::StrCat("no job ", job_id));
  if (job->state == JOB_RECOVERING && !job->over()) {
    return absl::AbortedError(absl::StrCat("rank ", rank, " of job ", job_id,
                                           " is withdrawn: the job recovers from a loss"));
  }
  if (rank >= job->ranks.slots.size()) {
    return absl::InvalidArgumentError(absl::StrCat("job ", job_id, " has no rank ", rank,
                                                   ": it has ", job->ranks.slots.size(), " ranks"));
  }
  RankSlot* slot = &job->ranks.slots[rank];
  if (slot->incarnation() != request.incarnation()) {
    absl::Status fenced = absl::AbortedError(
        absl::StrCat("incarnation ", request.incarnation(), " of rank ", rank, " of job ", job_id,
                     " is fenced: ", slot->incarnation(), " serves it now"));
    // An earlier life may have called in good faith. A later one was never assigned to anybody.
    const bool early = request.incarnation() < slot->incarnation();
    return early ? fenced : Because(RefusalReason::kPass, std::move(fenced));
  }
  const JobPasses passes(JobPassKey(options_.pass_key, job->spec.instance()));
  SLUICE_RETURN_IF_ERROR(passes.CheckWorker(rank, request.incarnation(), request.pass()));
  return Rank{job, slot};
}

absl::StatusOr<NextPhaseReply> SchedulerCore::NextPhase(const NextPhaseRequest& request,
                                                        absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const Rank rank, FindRank(request));
  Job* const job = rank.job;
  SLUICE_RETURN_IF_ERROR(lifecycle_.TakePhaseReport(job, request.rank(), request.report(), now));
  NextPhaseReply reply;
  if (job->over()) {
    reply.set_ready(true);
    reply.mutable_phase()->set_kind(Phase::FINISH);
    if (job->run) reply.mutable_phase()->set_number(job->run->phases().current().number());
    lifecycle_.TellEnd(rank.slot);
  } else if (PhaseReady(request)) {
    reply.set_ready(true);
    *reply.mutable_phase() = job->run->PhaseOf(request.rank());
  } else if (job->run) {
    reply.set_waiting_for(job->finishing()
                              ? "the job's last reports"
                              : DescribeMissing(*job, job->run->phases().Missing(), members_));
  }
  return reply;
}

bool SchedulerCore::PhaseReady(const NextPhaseRequest& request) {
  const auto rank = FindRank(request);
  if (!rank.ok() || rank->job->over()) return true;
  const Job& job = *rank->job;
  return job.run && !job.finishing() && job.run->PhaseReady(request.rank());
}

absl::StatusOr<NextTaskReply> SchedulerCore::NextTask(const NextTaskRequest& request,
                                                      absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(const Rank rank, FindRank(request));
  Job* const job = rank.job;
  if (job->over()) return absl::CancelledError(absl::StrCat("job ", job->job_id, " is over"));
  if (!job->run) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job->job_id, " has not started yet"));
  }
  return lifecycle_.NextTask(job, request, now);
}

absl::StatusOr<GetRouteReply> SchedulerCore::GetRoute(const GetRouteRequest& request) {
  const Job* job = jobs_.Find(request.job_id());
  if (job == nullptr || job->archived)
    return absl::NotFoundError(absl::StrCat("no route of job ", request.job_id()));
  // The pass alone decides: a rank that a recovery has withdrawn may still look for its pservers.
  // Without it, FindRank says what has become of the rank.
  const JobPasses passes(JobPassKey(options_.pass_key, job->spec.instance()));
  if (!passes.CheckWorker(request.rank(), request.incarnation(), request.pass()).ok())
    return FindRank(request).status();
  GetRouteReply reply;
  *reply.mutable_route() = job->spec.route();
  return reply;
}

absl::Status SchedulerCore::FailJob(const FailJobRequest& request, absl::Time now) {
  SLUICE_RETURN_IF_ERROR(CheckSecret(request.member_id(), request.secret()));
  SLUICE_ASSIGN_OR_RETURN(const Member* member, members_.Find(request.member_id()));
  Job* job = jobs_.Find(request.job_id());
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", request.job_id()));
  if (!Serves(*job, *member)) {
    return absl::FailedPreconditionError(
        absl::StrCat(DescribeMember(*member), " does not serve job ", job->job_id));
  }
  // An error that a rank saw while a member was lost is no reason to end the job.
  const RankSlot* const slot = job->ranks.SlotOf(member->id);
  const bool of_slot =
      slot == nullptr || (slot->serving() && slot->incarnation() == request.incarnation());
  if (!job->over() && (job->state == JOB_RECOVERING || !of_slot)) {
    return absl::FailedPreconditionError(absl::StrCat(
        DescribeMember(*member), " serves no rank of job ", job->job_id, " at present"));
  }
  lifecycle_.End(
      job, JOB_FAILED,
      absl::StrCat(DescribeMember(*member), " of job ", job->job_id, ": ", request.message()), now);
  Schedule(now);
  return absl::OkStatus();
}

// ----------------------------------------------------------------------------------- operators

absl::StatusOr<std::unique_ptr<Job>> SchedulerCore::PrepareJob(
    const JobConfig& config, const std::vector<TableConfig>& tables,
    const std::string& default_output, uint64_t first_number, std::vector<std::string> warnings,
    std::unique_ptr<const ResumePoint> resume) {
  if (shutting_down()) return absl::FailedPreconditionError("the cluster is shutting down");
  return admission_.Prepare(config, tables, default_output, first_number, std::move(warnings),
                            std::move(resume));
}

std::vector<MetaStore::Write> SchedulerCore::RecordsOf(const Job& job) const {
  NextRecord next = admission_.NextAfter(job);
  next.set_cluster(options_.cluster);
  next.set_pass_key(options_.pass_key);
  return {WriteOf(RecordOf(job)), WriteOf(next)};
}

absl::StatusOr<std::string> SchedulerCore::AddJob(std::unique_ptr<Job> job, absl::Time now) {
  if (shutting_down()) return absl::FailedPreconditionError("the cluster is shutting down");
  // Schedule may end the job, but does not forget it.
  const Job* const added = admission_.Add(std::move(job));
  Schedule(now);
  return added->job_id;
}

std::string SchedulerCore::JobOfRequest(const std::string& request_id) const {
  for (const auto& job : jobs_.all()) {
    if (!request_id.empty() && job->request_id == request_id) return job->job_id;
  }
  return "";
}

void SchedulerCore::RestoreJob(const JobRecord& record,
                               absl::StatusOr<std::unique_ptr<const ResumePoint>> point,
                               std::optional<RunHandover> run, absl::Time now) {
  const absl::Status found = point.status();
  Job* const job = admission_.Restore(record, std::move(point), std::move(run), now);
  if (!found.ok() && !lifecycle_.adopted(*job))
    lifecycle_.End(job, JOB_FAILED, std::string(found.message()), now);
}

absl::StatusOr<Job*> SchedulerCore::FindForOperator(const std::string& job_id) const {
  Job* job = jobs_.Find(job_id);
  if (job != nullptr) return job;
  return absl::NotFoundError(
      absl::StrCat("no job ", job_id, "; `sluice status` lists the jobs of this cluster"));
}

absl::StatusOr<WatchJobReply> SchedulerCore::WatchJob(const WatchJobRequest& request) {
  SLUICE_ASSIGN_OR_RETURN(const Job* job, FindForOperator(request.job_id()));
  WatchJobReply reply;
  *reply.mutable_status() = MakeJobStatus(*job, members_);
  if (job->steps) job->steps->AddTo(request.seen_steps(), &reply);
  return reply;
}

absl::StatusOr<uint64_t> SchedulerCore::JobVersion(const std::string& job_id) {
  const Job* job = jobs_.Find(job_id);
  if (job == nullptr) return absl::NotFoundError(absl::StrCat("no job ", job_id));
  return job->status_version;
}

absl::StatusOr<CheckpointJobReply> SchedulerCore::CheckpointJob(const std::string& job_id,
                                                                uint64_t number, absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(Job* const job, FindForOperator(job_id));
  return lifecycle_.Checkpoint(job, number, now);
}

bool SchedulerCore::CheckpointOver(const std::string& job_id, uint64_t number) {
  const Job* job = jobs_.Find(job_id);
  return job == nullptr || job->over() || !job->checkpoints ||
         job->checkpoints->Followed(number) <= job->checkpoints->over();
}

absl::Status SchedulerCore::CancelJob(const std::string& job_id, absl::Time now,
                                      const std::string& failure) {
  SLUICE_ASSIGN_OR_RETURN(Job* const job, FindForOperator(job_id));
  // The call may be repeated while the job is being cancelled.
  const bool cancelling = job->outcome == JOB_CANCELLED && job->state != JOB_CANCELLED;
  if (job->over() && !cancelling) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job_id, " has ended already (", job->result.status(), ")"));
  }
  if (failure.empty()) {
    lifecycle_.End(job, JOB_CANCELLED, "cancelled by the operator", now);
  } else {
    lifecycle_.End(job, JOB_FAILED, failure, now);
  }
  Schedule(now);
  return absl::OkStatus();
}

absl::Status SchedulerCore::ScaleJob(const std::string& job_id, uint32_t worker_num,
                                     absl::Time now) {
  SLUICE_ASSIGN_OR_RETURN(Job* const job, FindForOperator(job_id));
  SLUICE_RETURN_IF_ERROR(lifecycle_.Scale(job, worker_num, now));
  // A request that is withdrawn gives workers back.
  Schedule(now);
  return absl::OkStatus();
}

absl::StatusOr<DrainPserverReply> SchedulerCore::DrainPserver(const DrainPserverRequest& request,
                                                              absl::Time now) {
  if (shutting_down()) return absl::FailedPreconditionError("the cluster is shutting down");
  const uint32_t rank = request.rank();
  if (rank >= options_.pserver_num) {
    return absl::NotFoundError(absl::StrCat("no pserver ", rank, ": the cluster has ",
                                            options_.pserver_num, "; ranks begin at 0"));
  }
  SLUICE_RETURN_IF_ERROR(CheckDrainsItself(request));
  const std::vector<const Member*> usable = members_.UsablePservers();
  const bool others = std::any_of(usable.begin(), usable.end(), [rank](const Member* pserver) {
    return pserver->self.rank() != rank;
  });
  // Nothing remains to be done for one that is draining and has no shards any more.
  const bool done = members_.draining().count(rank) > 0 && lifecycle_.JobsOn(rank).empty();
  if (!request.cancel() && !others && !done) {
    return absl::FailedPreconditionError(
        absl::StrCat("pserver ", rank, " cannot be drained: no other pserver of the cluster is ",
                     "alive and not draining; start one, or cancel the draining of another"));
  }
  if (request.cancel()) {
    members_.CancelDrain(rank);
  } else {
    members_.Drain(rank, {/*of_process=*/request.member_id() != 0});
  }
  KeepDraining();
  // A pserver that repeats its call does not ask again.
  if (request.member_id() == 0) lifecycle_.DrainAgain(rank);
  lifecycle_.DrainingChanged(now);
  queue_.MembersChanged();
  Schedule(now);
  DrainPserverReply reply;
  for (std::string& job : lifecycle_.JobsOn(rank)) reply.add_jobs(std::move(job));
  reply.set_failure(lifecycle_.WhyAllStay(rank));
  return reply;
}

absl::Status SchedulerCore::CheckDrainsItself(const DrainPserverRequest& request) {
  if (request.member_id() == 0) return absl::OkStatus();
  const Member* const holder = members_.At(ROLE_PSERVER, request.rank());
  if (holder == nullptr || !holder->alive) {
    return absl::UnavailableError(
        absl::StrCat("pserver ", request.rank(), " is not registered with this scheduler"));
  }
  if (holder->id == request.member_id()) return CheckSecret(holder->id, request.secret());
  return Because(RefusalReason::kFenced,
                 absl::AbortedError(absl::StrCat("another process serves as ",
                                                 DescribeMember(*holder), "; it is not drained")));
}

void SchedulerCore::KeepDraining() {
  DrainingRecord record;
  for (const auto& [rank, mark] : members_.draining()) {
    if (mark.of_process) continue;
    record.add_pservers(rank);
    if (mark.left) record.add_left(rank);
  }
  std::string text = record.SerializeAsString();
  if (text == kept_draining_) return;
  kept_draining_ = std::move(text);
  effects_.records()->DrainingChanged(record);
}

ClusterStatus SchedulerCore::GetStatus(absl::Time now) {
  ClusterStatus status;
  status.set_name(options_.cluster);
  status.set_uptime_s(absl::ToDoubleSeconds(now - started_));
  for (const Member* member : members_.All()) {
    MemberStatus* one = status.add_members();
    *one = MakeMemberStatus(*member, now);
    const Job* job = member->job_id.empty() ? nullptr : jobs_.Find(member->job_id);
    if (job == nullptr) continue;
    const auto rank = job->ranks.by_member.find(member->id);
    if (rank != job->ranks.by_member.end()) one->set_job_rank(rank->second);
  }
  for (const auto& job : jobs_.all()) *status.add_jobs() = MakeJobStatus(*job, members_);
  return status;
}

std::string SchedulerCore::NotReady() {
  std::vector<std::string> missing = members_.MissingPservers();
  for (std::string& worker : members_.MissingWorkers()) missing.push_back(std::move(worker));
  return absl::StrJoin(missing, ", ");
}

// ------------------------------------------------------------------------------------ shutdown

void SchedulerCore::Shutdown(absl::Time now) {
  if (shutting_down()) return;
  shutdown_at_ = now;
  for (const auto& job : jobs_.all()) {
    lifecycle_.End(job.get(), JOB_CANCELLED, "the cluster was shut down", now);
  }
  for (Member* member : members_.All()) effects_.DesiredChanged(member);
  StopPservers(now);
}

void SchedulerCore::StopPservers(absl::Time now) {
  if (!shutting_down() || pservers_stop_) return;
  if (!members_.Alive(ROLE_WORKER).empty() && now < shutdown_at_ + options_.worker_stop) return;
  pservers_stop_ = true;
  for (Member* member : members_.Alive(ROLE_PSERVER)) effects_.DesiredChanged(member);
}

bool SchedulerCore::CanEnd(absl::Time now) {
  if (!shutting_down()) return false;
  if (now >= shutdown_at_ + options_.all_stop) return true;
  for (const Job* job : jobs_.active()) {
    if (job->state != job->outcome) return false;
  }
  return members_.Alive(ROLE_WORKER).empty() && members_.Alive(ROLE_PSERVER).empty();
}

// --------------------------------------------------------------------------------- time, output

void SchedulerCore::NoticePause(absl::Time now) {
  if (pauses_.HasPaused(now)) members_.ForgiveSilence(now);
}

void SchedulerCore::Tick(absl::Time now) {
  NoticePause(now);
  pauses_.Ticked(now);
  for (const Member* member : members_.Expire(now)) OnMemberLost(*member, now);
  members_.Forget(now);
  for (Job* job : jobs_.active()) lifecycle_.Tick(job, now);
  queue_.MembersChanged();  // the head of the queue may have waited too long
  Schedule(now);
  StopPservers(now);
  for (const std::string& job_id : jobs_.Settle(members_)) effects_.JobForgotten(job_id);
}

void SchedulerCore::OutputBegun(const std::string& job_id, absl::Time now) {
  if (Job* job = jobs_.Find(job_id)) lifecycle_.OutputBegun(job, now);
}

void SchedulerCore::OutputFailed(const std::string& job_id, const absl::Status& why,
                                 absl::Time now) {
  if (Job* job = jobs_.Find(job_id)) {
    lifecycle_.End(job, JOB_FAILED, std::string(why.message()), now);
  }
}

void SchedulerCore::OutputEnded(const std::string& job_id, const absl::Status& status) {
  if (Job* job = jobs_.Find(job_id)) lifecycle_.OutputEnded(job, status);
}

void SchedulerCore::CheckpointWritten(const std::string& job_id, uint64_t number,
                                      const absl::Status& status, const std::string& warning,
                                      absl::Time now) {
  Job* job = jobs_.Find(job_id);
  if (job == nullptr || job->archived) return;
  lifecycle_.CheckpointWritten(job, number, status, warning, now);
}

void SchedulerCore::Warn(const std::string& job_id, const std::string& warning) {
  Job* job = jobs_.Find(job_id);
  if (job == nullptr || job->archived || !AddWarning(job, warning)) return;
  if (job->over()) job->result.add_warnings(warning);
  if (job->state != job->outcome) effects_.records()->Changed(*job);
  effects_.StatusChanged(job);
}

}  // namespace sluice
