#include "scheduler/core/member_calls.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/security/job_passes.h"
#include "scheduler/job/output_action.h"
#include "scheduler/recovery/checkpoint_lifecycle.h"

namespace sluice {
namespace {

// The answer to a process that asks for the place of a living member.
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
  if (!job.run()) return;
  const uint64_t generation = job.spec().route().generation();
  if (job.ranks.removal() && job.ranks.removal()->step > 0) {
    // They do not meet without the lost rank, but some may not know that the step has closed.
    assignment->mutable_group()->set_generation(generation);
    assignment->mutable_group()->set_closed_steps(job.ranks.removal()->step);
  }
  if (!job.ranks.vacant().empty()) return;
  std::vector<std::string> cards = job.ranks.CardsOf(generation);
  if (cards.empty()) return;
  RankGroupCards* const group = assignment->mutable_group();
  group->set_generation(generation);
  for (std::string& card : cards) group->add_cards(std::move(card));
  group->set_closed_steps(job.run()->closed_steps());
}

// Adds what a member that serves the job shall do for it.
void AddDesired(Job* job, const Member& member, const std::string& pass_key, PollReply* reply) {
  const std::string job_key = JobPassKey(pass_key, job->spec().instance());
  if (member.self.role() == ROLE_PSERVER) {
    // A pserver that is not told to host a job drops its tables.
    if (!job->attempt.hosted()) return;
    JobSpec* host = reply->add_host();
    *host = job->spec();
    // Pservers check passes. A worker never gets the key, with which it could make those of other
    // ranks.
    host->set_pass_key(job_key);
    // A member that serves the job as a pserver has an index.
    CheckpointLifecycle::AddOrder(*job, job->pservers.IndexOf(member.id).value(), reply);
    return;
  }
  const uint32_t rank = job->ranks.RankOf(member.id).value();
  const RankSlot& slot = job->ranks.slots()[rank];
  if (job->state() == JOB_STARTING || job->state() == JOB_RECOVERING || !slot.serving()) return;
  if (job->ranks.is_vacant(rank)) return;  // the assignment comes later
  WorkerAssignment* assignment = reply->mutable_assignment();
  *assignment->mutable_job() = job->spec();
  assignment->set_rank(rank);
  assignment->set_incarnation(slot.incarnation());
  assignment->set_rejoins(slot.rejoins());
  assignment->set_pass(JobPasses(job_key).OfWorker(rank, slot.incarnation()));
  CheckpointLifecycle::AddAsked(*job, assignment);
  if (const auto& end = job->course.early_end()) *assignment->mutable_early_end() = *end;
  AddCards(*job, assignment);
}

}  // namespace

RegisterRequest MemberCalls::WithProvenHolds(const RegisterRequest& request,
                                             RegisterNotes* notes) const {
  RegisterRequest proven = request;
  proven.clear_holds();
  for (const HeldJob& held : request.holds()) {
    const JobPasses passes(JobPassKey(parts_->options().pass_key, held.instance()));
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

absl::StatusOr<RegisterReply> MemberCalls::Register(const RegisterRequest& asked, absl::Time now,
                                                    bool believed, RegisterNotes* notes) {
  if (notes != nullptr) *notes = {};
  if (parts_->shutting_down()) {
    return absl::FailedPreconditionError("the cluster is shutting down and takes no new members");
  }
  // First: from here on, what the caller claims to hold is believed.
  const RegisterRequest request = WithProvenHolds(asked, notes);
  // Before the registration, which may give the place to the caller.
  const bool disbelieved = !believed && parts_->members.SaysEnded(request);
  Member fenced;
  SLUICE_ASSIGN_OR_RETURN(Member * member,
                          parts_->members.Register(request, believed, now, &fenced));
  if (notes != nullptr) {
    notes->disbelieved = disbelieved;
    if (fenced.id != 0) notes->replaced = DescribeMember(fenced);
  }
  parts_->KeepDraining();
  if (member == nullptr) return Refusal(*parts_->members.At(request.role(), request.rank()), now);
  // Before TakeBack: what the lost one had is vacant then, and the newcomer may be its successor.
  if (fenced.id != 0) parts_->MemberLost(fenced, now);
  parts_->queue.MembersChanged();
  RegisterReply reply;
  reply.set_member_id(member->id);
  reply.set_secret(MemberSecret(parts_->options().pass_key, member->id, member->self.life()));
  reply.set_lease_ms(absl::ToInt64Milliseconds(parts_->options().lease));
  reply.set_heartbeat_ms(absl::ToInt64Milliseconds(parts_->options().heartbeat));
  reply.set_cluster(parts_->options().cluster);
  reply.set_adopted(parts_->lifecycle.TakeBack(member, now));
  parts_->Schedule(now);
  return reply;
}

absl::StatusOr<PollReply> MemberCalls::Poll(const PollRequest& request, absl::Time now) {
  // Before anything is judged by time: after a pause of the scheduler, this report may be the first
  // event.
  parts_->NoticePause(now);
  SLUICE_RETURN_IF_ERROR(parts_->CheckSecret(request.member_id(), request.secret()));
  SLUICE_ASSIGN_OR_RETURN(Member * member, parts_->members.Find(request.member_id()));
  if (member->self.role() != ROLE_PSERVER && request.hosted_size() > 0)
    return absl::InvalidArgumentError("PollRequest.hosted: only pservers host jobs");
  // The first report makes a worker free: only then is it known to take orders.
  const bool was_free = member->free();
  parts_->members.Report(request, now, member);
  if (member->free() != was_free) parts_->queue.MembersChanged();
  if (member->self.role() == ROLE_PSERVER) {
    TakeHosted(*member, now);
  } else if (Job* job = member->job_id.empty() ? nullptr : parts_->jobs.Find(member->job_id)) {
    if (request.has_cut()) parts_->lifecycle.TakeCut(*member, request.cut(), job, now);
    if (request.has_group()) parts_->lifecycle.TakeGroup(*member, request.group(), job, now);
    parts_->lifecycle.TakeProgress(*member, request.progress(), job, now);
  }
  TakeTraces(request, *member, now);
  TakeFreshness(*member, now);
  parts_->Schedule(now);
  return Desired(request.member_id(), request.seen_version());
}

void MemberCalls::TakeHosted(const Member& pserver, absl::Time now) {
  for (const auto& [job_id, hosted] : pserver.hosted) {
    if (Job* job = parts_->jobs.Find(job_id))
      parts_->lifecycle.TakeHosted(pserver, hosted, job, now);
  }
}

void MemberCalls::TakeTraces(const PollRequest& request, const Member& member, absl::Time now) {
  for (const TraceBatch& batch : request.traces()) {
    const Job* job = parts_->jobs.Find(batch.job_id());
    if (job == nullptr || job->over() || job->config().trace_file().empty()) continue;
    // Nobody writes into the trace of another job.
    if (!Serves(*job, member)) continue;
    OutputAction action;
    action.kind = OutputAction::kTrace;
    action.job_id = job->id();
    action.time = now;
    action.trace = {member.id, member.self, now, batch};
    parts_->effects.Write(std::move(action));
  }
}

void MemberCalls::TakeFreshness(const Member& member, absl::Time now) {
  for (const std::string& job_id : parts_->requests.Answer(member.id, member.seen_version)) {
    if (Job* job = parts_->jobs.Find(job_id)) parts_->lifecycle.CheckFinishing(job, now);
  }
}

absl::StatusOr<uint64_t> MemberCalls::DesiredVersion(uint64_t member_id) {
  SLUICE_ASSIGN_OR_RETURN(const Member* member, parts_->members.Find(member_id));
  return member->version;
}

absl::StatusOr<PollReply> MemberCalls::Desired(uint64_t member_id, uint64_t seen_version) {
  SLUICE_ASSIGN_OR_RETURN(const Member* member, parts_->members.Find(member_id));
  const bool pserver = member->self.role() == ROLE_PSERVER;
  PollReply reply;
  reply.set_version(member->version);
  reply.set_stop(parts_->shutting_down() && (!pserver || parts_->pservers_stop()));
  // A pserver's state holds all its jobs, so it is built only for a member that lacks it.
  if (member->version == seen_version) return reply;
  for (Job* job : parts_->jobs.ServedBy(*member))
    AddDesired(job, *member, parts_->options().pass_key, &reply);
  return reply;
}

absl::Status MemberCalls::Leave(const LeaveRequest& request, absl::Time now) {
  SLUICE_RETURN_IF_ERROR(parts_->CheckSecret(request.member_id(), request.secret()));
  absl::StatusOr<Member*> member = parts_->members.Find(request.member_id());
  if (!member.ok()) return absl::OkStatus();  // gone already
  parts_->members.MarkLeft(*member, request.reason());
  parts_->KeepDraining();
  parts_->MemberLost(**member, now);
  parts_->Schedule(now);
  parts_->StopPservers(now);
  return absl::OkStatus();
}

void MemberCalls::ConnectionBroke(uint64_t member_id, absl::string_view secret, absl::Time now) {
  // Anybody could open a connection, name a member and close it.
  if (parts_->CheckSecret(member_id, secret).ok()) parts_->members.NoteCutOff(member_id, now);
}

std::optional<std::pair<Role, uint32_t>> MemberCalls::RoleAndRankOf(uint64_t member_id) const {
  const Member* const member = parts_->members.ById(member_id);
  if (member == nullptr) return std::nullopt;
  return std::make_pair(member->self.role(), member->self.rank());
}

bool MemberCalls::MemberEnded(const MemberEndedRequest& request, absl::Time now) {
  Member* member = parts_->members.FindProcess(request);
  if (member == nullptr) return false;
  // Its lease may have ended before, or the answer to an earlier report was lost.
  if (!member->alive) return !member->left;
  parts_->members.MarkGone(member, request.reason());
  parts_->MemberLost(*member, now);
  parts_->Schedule(now);
  parts_->StopPservers(now);
  return true;
}

}  // namespace sluice
