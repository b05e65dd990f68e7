#include "scheduler/recovery/job_losses.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "scheduler/registry/job_status.h"

namespace sluice {

JobLosses::JobLosses(absl::Duration wait, Parts parts)
    : parts_(parts),
      replacement_(wait, {parts.members, parts.queue, parts.pauses, parts.effects}),
      removal_(wait, {parts.members, parts.pauses, parts.effects, parts.checkpoints}),
      takeover_(wait, {parts.members, parts.pauses, parts.effects}) {}

// ----------------------------------------------------------------------------------------- losses

absl::Status JobLosses::Lose(Job* job, const Member& member, absl::Time now) {
  // Its next attempt does not use this pserver.
  if (member.self.role() == ROLE_PSERVER && job->awaits_members() &&
      std::count(job->pservers.ranks().begin(), job->pservers.ranks().end(), member.self.rank()) ==
          0) {
    return absl::OkStatus();
  }
  // One that has left in order is no loss, as long as it has no rank.
  if (ReservedForAttempt(*job, member) && member.left) return absl::OkStatus();
  if (RankSlot* const slot = job->ranks.SlotOf(member.id)) parts_.attempts->Release(job, slot);
  LossDecision decision = DecideMemberLoss(*job, member, now, FreeWorkers(job) > 0);
  // The other members may not know of it.
  if (parts_.adoption->awaits(*job) && decision.kind == LossDecision::kReplaceRank)
    decision.kind = LossDecision::kRollback;
  if (!TakenForVacantRank(*job, member)) Count(job, member, decision, now);
  const absl::Status carried_out = CarryOut(decision, member, job, now);
  // Also when nothing could be done: the count of losses has to survive this scheduler.
  if (!job->over()) parts_.effects->records()->Changed(*job);
  return carried_out;
}

void JobLosses::Count(Job* job, const Member& lost, const LossDecision& decision, absl::Time now) {
  if (!job->over()) {
    // Before the loss, whose event names the step. The next scheduler cannot learn it from a job
    // that lacks a member.
    if (job->run()) {
      const JobStatus status = MakeJobStatus(*job, *parts_.members);
      job->recovery.NoteReached(status.global_step(), status.examples());
    }
    // A worker that dies each time that it is started must not make the job wait for ever.
    job->recovery.CountLoss(lost, now, /*waits_anew=*/!ReservedForAttempt(*job, lost));
    // At the moment of the loss, so that the curve shows it there and not at the end of the epoch.
    parts_.effects->WriteRecoveryPoints(*job, now);
  }
  // Gives reserved workers back, which may be needed now.
  if (decision.kind != LossDecision::kGoesOn) {
    parts_.plans->Drop(job, absl::StrCat(DescribeMember(lost),
                                         " was lost before the checkpoint for that was complete"));
  }
}

absl::Status JobLosses::CarryOut(const LossDecision& decision, const Member& lost, Job* job,
                                 absl::Time now) {
  switch (decision.kind) {
    case LossDecision::kGoesOn:
      // A checkpoint of the last step may wait for the member's part.
      parts_.checkpoints->MemberLost(job, lost, now);
      if (!job->over()) takeover_.GiveUp(job);
      return absl::OkStatus();
    case LossDecision::kReplaceRank:
      if (job->ranks.removal()) {
        // Its last steps are needed as well, and the next attempt waits for a worker in its place.
        RemoveRank(job, job->ranks.RankOf(lost.id).value(), /*leave_out=*/false, decision.message,
                   now);
      } else {
        ReplaceRank(job, job->ranks.RankOf(lost.id).value(), decision.message, now);
      }
      return absl::OkStatus();
    case LossDecision::kTakeOver:
      return TakeOverShards(job, lost, decision.message, now);
    case LossDecision::kRollback:
      if (job->ranks.removal())
        return ShrinkAndRollBack(job, job->ranks.left_out(), decision.message, now);
      return RollBack(job, now);
    case LossDecision::kShrink:
      return Shrink(job, lost, decision.message, now);
    case LossDecision::kFails:
      // It does not return to its former members either.
      parts_.plans->Forget(job);
      return absl::AbortedError(decision.message);
  }
  return absl::OkStatus();
}

absl::Status JobLosses::Shrink(Job* job, const Member& lost, const std::string& why,
                               absl::Time now) {
  const bool runs = job->run() && !parts_.adoption->awaits(*job);
  const absl::Status can = RankRemoval::CanBegin(*job);
  // Adopted members that are still missing cannot say where they stand.
  if (!parts_.adoption->awaits(*job) && (job->ranks.removal() || can.ok()) &&
      (!WorkersKeepTables(*job) || OthersHoldTables(*job, lost))) {
    RemoveRank(job, job->ranks.RankOf(lost.id).value(), /*leave_out=*/true, why, now);
    return absl::OkStatus();
  }
  // An attempt that runs could have continued at another moment.
  if (runs) {
    return ShrinkAndRollBack(
        job, job->ranks.left_out() + 1,
        can.ok() ? "no other worker holds the dense tables" : std::string(can.message()), now);
  }
  // A job that is waiting for its remaining workers to stop may still have more of them than the
  // next attempt needs.
  if (!job->awaits_members() || parts_.attempts->Count(*job) < job->spec().worker_num())
    parts_.next_attempt->Shrink(job, /*ranks=*/1);
  return RollBack(job, now);
}

void JobLosses::LoseMissing(Job* job) {
  const uint32_t missing = parts_.adoption->MissingWorkers(*job);
  // A free worker is better than a smaller job.
  const uint32_t replaced = std::min(missing, FreeWorkers(job));
  if (ShrinksOnLoss(*job) && missing > replaced)
    parts_.next_attempt->Shrink(job, missing - replaced);
}

absl::Status JobLosses::LoseDraining(Job* job, absl::Time now) {
  for (const auto& [index, vacancy] : job->pservers.vacant()) {
    if (job->pservers.members()[index] != 0 || parts_.members->UsablePservers().empty()) continue;
    if (parts_.members->draining().count(job->pservers.ranks()[index]) == 0) continue;
    job->recovery.NoteCause(vacancy.why, now);
    return RollBack(job, now);
  }
  return absl::OkStatus();
}

uint32_t JobLosses::FreeWorkers(Job* job) const {
  uint32_t free = 0;
  for (const Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    // One that is only reserved for the job is given back when its plan is dropped.
    const bool reserved = !job->awaits_members() && worker->job_id == job->id() &&
                          job->ranks.SlotOf(worker->id) == nullptr;
    free += worker->free_for(job->config()) || reserved;
  }
  return free;
}

// ------------------------------------------------------------------------------------------ ranks

void JobLosses::ReplaceRank(Job* job, uint32_t rank, const std::string& why, absl::Time now) {
  replacement_.Lose(job, rank, parts_.attempts->NewIncarnation(), why, now);
  TellRanks(*job);
  parts_.effects->records()->MembersChanged(*job);
  parts_.checkpoints->RankLost(job, rank, now);
}

void JobLosses::RemoveRank(Job* job, uint32_t rank, bool leave_out, const std::string& why,
                           absl::Time now) {
  replacement_.Lose(job, rank, parts_.attempts->NewIncarnation(), why, now);
  TellRanks(*job);
  parts_.effects->records()->MembersChanged(*job);
  // After the rank is vacant: the removal looks for the last step among the ranks that are left.
  removal_.Lose(job, rank, leave_out, why, now);
}

absl::Status JobLosses::AdvanceRanks(Job* job, absl::Time now) {
  if (job->ranks.removal()) return AdvanceRemoval(job, now);
  std::vector<uint32_t> settled;
  const absl::Status status = replacement_.Advance(job, now, &settled);
  // Until now the lost life, which may only have been slow, could continue to other steps and cuts.
  for (const uint32_t rank : settled) parts_.checkpoints->RankLost(job, rank, now);
  // A worker left in order, and no replacement came in time. Other errors end the attempt: an
  // impossible report says nothing about the other ranks.
  if (absl::IsDeadlineExceeded(status) && ShrinksOnLoss(*job))
    return ReplacementIsLate(job, status, now);
  return status;
}

absl::Status JobLosses::ReplacementIsLate(Job* job, const absl::Status& late, absl::Time now) {
  std::vector<uint32_t> fewer;
  for (const auto& [rank, vacancy] : job->ranks.vacant()) {
    if (job->ranks.slots()[rank].member_id() == 0 && fewer.size() + 1 < job->spec().worker_num())
      fewer.push_back(rank);
  }
  if (fewer.empty()) return late;
  const std::string why(late.message());
  const absl::Status in_place = RankRemoval::CanBegin(*job);
  job->recovery.NoteCause(why, now);
  if (!in_place.ok())
    return ShrinkAndRollBack(job, fewer.size(), std::string(in_place.message()), now);
  for (const uint32_t rank : fewer) removal_.Lose(job, rank, /*leave_out=*/true, why, now);
  return AdvanceRemoval(job, now);
}

absl::Status JobLosses::AdvanceRemoval(Job* job, absl::Time now) {
  if (job->over() || job->state() != JOB_RUNNING) return absl::OkStatus();
  const absl::StatusOr<bool> done = removal_.Advance(job, now);
  // Before EndRemoval, which forgets them.
  const uint32_t ranks = job->ranks.left_out();
  if (!done.ok()) return ShrinkAndRollBack(job, ranks, std::string(done.status().message()), now);
  if (!*done) return absl::OkStatus();
  job->ranks.EndRemoval();
  parts_.next_attempt->Shrink(job, static_cast<uint32_t>(ranks));
  job->recovery.WaitFrom(now);
  job->recovery.ContinueInPlace();
  return RollBack(job, now);
}

void JobLosses::TellRanks(const Job& job) {
  if (!WorkersKeepTables(job)) return;
  for (const RankSlot& slot : job.ranks.slots()) {
    if (Member* member = parts_.members->ById(slot.member_id()))
      parts_.effects->DesiredChanged(member);
  }
}

absl::Status JobLosses::TakeGroup(const Member& worker, const RankGroupReport& report, Job* job,
                                  absl::Time now) {
  if (job->over() || job->state() != JOB_RUNNING || !WorkersKeepTables(*job))
    return absl::OkStatus();
  const RankSlot* const slot = job->ranks.SlotOf(worker.id);
  if (slot == nullptr || report.job_id() != job->id() ||
      slot->incarnation() != report.incarnation() ||
      report.rank() != *job->ranks.RankOf(worker.id) ||
      // The report comes from outside. Sums of ranks that do not exist would be kept with it.
      report.totals_size() > static_cast<int>(job->ranks.slots().size())) {
    return absl::OkStatus();
  }
  if (!job->ranks.cards().Take(report, job->spec().route().generation())) return absl::OkStatus();
  // Also when another loss has raised the generation since: the ranks that gave up have ended.
  if (!report.error().empty()) {
    const std::string why =
        absl::StrCat(DescribeMember(worker), " of job ", job->id(), ": ", report.error());
    SLUICE_RETURN_IF_ERROR(CountGroupFault(*job, why));
    job->recovery.NoteCause(why, now);
    return RollBack(job, now);
  }
  if (!job->ranks.CardsOf(job->spec().route().generation()).empty()) TellRanks(*job);
  return job->ranks.removal() ? AdvanceRemoval(job, now) : absl::OkStatus();
}

absl::Status JobLosses::CountGroupFault(const Job& job, const std::string& why) {
  GroupFaults& faults = faults_[&job];
  const uint64_t losses = job.recovery.losses();
  // Another loss may be the cause. A new checkpoint is progress, so that the job comes to its end.
  if (losses != faults.losses || !CheckpointLifecycle::NewestOfInstance(job).empty())
    faults.in_row = 0;
  faults.losses = losses;
  ++faults.in_row;
  const std::string advice =
      "check the network between the workers, or let the pservers keep the dense tables "
      "(sync_configs.dense: PSERVER)";
  if (MaxLosses(job.config()) == 0)
    return absl::AbortedError(absl::StrCat(why, " (recovery.max_losses is 0); ", advice));
  if (faults.in_row <= kMaxGroupFaults) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat(why, "; the job has gone back ", kMaxGroupFaults,
                   " times for such a reason without making a checkpoint in between; ", advice));
}

// --------------------------------------------------------------------------------------- pservers

absl::Status JobLosses::TakeOverShards(Job* job, const Member& lost, const std::string& why,
                                       absl::Time now) {
  const uint32_t index = job->pservers.IndexOf(lost.id).value();
  if (!job->ledger.newest_unusable().ok() && CheckpointLifecycle::NewestOfInstance(*job).empty())
    return job->ledger.newest_unusable();
  takeover_.Lose(job, index, why, now);
  parts_.effects->records()->MembersChanged(*job);
  parts_.checkpoints->PserverVacant(job, index, now);
  return absl::OkStatus();
}

void JobLosses::TakeHosted(Job* job, uint32_t index, const HostedJob& hosted) {
  const bool may_publish =
      !parts_.adoption->awaits(*job) && parts_.effects->records()->refused().empty();
  takeover_.TakeHosted(job, index, hosted, may_publish);
}

// ------------------------------------------------------------------------------------- the attempt

absl::Status JobLosses::Advance(Job* job, absl::Time now) {
  if (!parts_.effects->records()->refused().empty()) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(takeover_.Advance(job, now));
  return AdvanceRanks(job, now);
}

absl::Status JobLosses::RollBack(Job* job, absl::Time now) {
  if (job->ranks.removal())
    return ShrinkAndRollBack(job, job->ranks.left_out(), job->recovery.counts().last(), now);
  return parts_.next_attempt->RollBack(job, now);
}

absl::Status JobLosses::ShrinkAndRollBack(Job* job, size_t ranks, const std::string& why,
                                          absl::Time now) {
  job->ranks.EndRemoval();
  parts_.next_attempt->Shrink(job, static_cast<uint32_t>(ranks));
  job->recovery.WaitFrom(now);
  job->AddWarning(absl::StrCat("the job lost a worker and could not continue where it was, so it ",
                               "went back to its newest checkpoint: ", why));
  return RollBack(job, now);
}

void JobLosses::Forget(Job* job) {
  // By address: a later job may be allocated at the same place.
  faults_.erase(job);
  job->pservers.EndAttempt();
  job->ranks.EndRemoval();
  // Workers that were taken for vacant ranks know nothing of the job.
  for (const uint32_t rank : job->ranks.ClearVacant())
    parts_.attempts->Release(job, &job->ranks.slots()[rank]);
}

}  // namespace sluice
