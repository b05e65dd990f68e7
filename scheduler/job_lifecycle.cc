#include "scheduler/job_lifecycle.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "scheduler/job_status.h"
#include "scheduler/member_loss.h"
#include "scheduler/request_text.h"

namespace sluice {
namespace {

// Says what the losses have cost until now, as in result.json, and how old the newest checkpoint
// is. `epoch`: from 1.
// REQUIRES: job.run.
std::vector<Scalar> RecoveryPoints(const Job& job, uint64_t epoch) {
  std::vector<Scalar> points =
      job.recovery.Points(epoch, /*replayed=*/job.run->result().examples_replayed());
  if (!job.checkpoints) return points;
  const CheckpointStatus checkpoint = job.checkpoints->status();
  if (checkpoint.step() > 0 || checkpoint.age_s() > 0)
    points.push_back({"checkpoint/age_s", epoch, checkpoint.age_s()});
  return points;
}

// Adds them to the points of an epoch that has ended.
void AddRecoveryPoints(const Job& job, std::vector<Scalar>* points) {
  if (points->empty()) return;
  for (Scalar& point : RecoveryPoints(job, points->back().step))
    points->push_back(std::move(point));
}

// Which of the job's pservers the member is.
std::optional<uint32_t> IndexOf(const Job& job, const Member& pserver) {
  const auto at = std::find(job.pservers.members.begin(), job.pservers.members.end(), pserver.id);
  if (at == job.pservers.members.end()) return std::nullopt;
  return static_cast<uint32_t>(at - job.pservers.members.begin());
}

}  // namespace

// ------------------------------------------------------------------------------------ 1, 2: start

JobLifecycle::JobLifecycle(Options options, Parts parts)
    : options_(std::move(options)),
      parts_(parts),
      checkpoints_(options_.wait, {parts.members, parts.pauses, parts.effects}),
      attempts_({options_.first_id, options_.place}, {parts.members, parts.queue, parts.effects}),
      adoption_(options_.lease, {parts.members, parts.jobs, parts.pauses, parts.effects,
                                 &checkpoints_, &attempts_}),
      next_attempt_(options_.wait, {parts.members, parts.queue, parts.requests, parts.pauses,
                                    parts.effects, &checkpoints_, &attempts_, &adoption_}),
      plans_({parts.members, parts.effects, &checkpoints_, &attempts_}),
      replacement_(options_.wait, {parts.members, parts.queue, parts.pauses, parts.effects}),
      removal_(options_.wait, {parts.members, parts.pauses, parts.effects, &checkpoints_}),
      takeover_(options_.wait, {parts.members, parts.pauses, parts.effects}) {}

void JobLifecycle::Start(Job* job, absl::Time now) {
  parts_.queue->Remove(job);
  parts_.jobs->Activate(job);
  job->message.clear();
  job->queue_position = 0;
  for (const Member* pserver : parts_.members->UsablePservers())
    job->pservers.ranks.push_back(pserver->self.rank());
  const absl::Status begun = attempts_.Begin(job, now);
  if (!begun.ok()) return EndUnless(begun, job, now);
  job->state = JOB_STARTING;
  job->begun = true;
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
  parts_.effects->Write(ActionOf(*job, OutputAction::kStarted, now));
}

void JobLifecycle::Restore(Job* job, const Recovery& counts, absl::Time now) {
  parts_.jobs->Activate(job);
  job->state = JOB_RECOVERING;
  job->recovery.Restore(counts, now);
  if (job->resume != nullptr) job->before = job->resume->state().result();
  next_attempt_.Await(job);
  parts_.queue->MembersChanged();
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
  parts_.effects->WriteStartedAgain(*job, now);
}

absl::Status JobLifecycle::Adopt(Job* job, const Recovery& counts, const StoredRun& run,
                                 std::unique_ptr<const ResumePoint> began_at,
                                 JobAdoption::Newest* newest, absl::Time now) {
  return adoption_.Begin(job, counts, run, std::move(began_at), newest, now);
}

bool JobLifecycle::TakeBack(Member* member, absl::Time now) {
  std::vector<JobAdoption::Refuted> refuted;
  const bool serves = adoption_.TakeBack(member, now, &refuted);
  for (const auto& [job, why] : refuted) Doubt(job, why, now);
  return serves;
}

void JobLifecycle::RefuteAdoption(Job* job, const absl::Status& why, absl::Time now) {
  if (job->over() || job->state != JOB_RUNNING) return;
  parts_.effects->Log(
      *job, absl::StrCat("the run of the earlier scheduler cannot continue: ", why.message()));
  plans_.Drop(job, std::string(why.message()));
  job->recovery.NoteCause(std::string(why.message()), now);
  RollBack(job, now);
}

bool JobLifecycle::Doubt(Job* job, const absl::Status& error, absl::Time now) {
  if (!adoption_.doubted(*job)) return false;
  RefuteAdoption(job, error, now);
  return true;
}

absl::StatusOr<NextTaskReply> JobLifecycle::NextTask(Job* job, const NextTaskRequest& request,
                                                     absl::Time now) {
  const uint64_t last = job->run->last_request(request.rank());
  absl::StatusOr<NextTaskReply> reply = job->run->NextTask(request);
  if (reply.ok()) {
    // A repeated request gets the same answer and changes nothing.
    const bool repeated = request.number() != 0 && request.number() == last;
    if (!repeated) parts_.effects->records()->TaskAsked(*job, request);
  } else if (Doubt(job, reply.status(), now)) {
    return absl::AbortedError(reply.status().message());
  }
  return reply;
}

void JobLifecycle::WriteResultAgain(Job* job, absl::Time now) {
  parts_.jobs->Activate(job);
  job->ended_at = now;
  parts_.effects->StatusChanged(job);
  OutputAction ended = ActionOf(*job, OutputAction::kEnded, now);
  ended.config.set_worker_num(job->spec.worker_num());
  ended.result = job->result;
  ended.save_id = SaveIdOf(*job);
  ended.again = true;
  parts_.effects->Write(std::move(ended));
}

void JobLifecycle::TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job,
                              absl::Time now) {
  if (job->over() || !job->hosted || HostedOf(*job, pserver) == nullptr) return;
  if (hosted.has_cut()) {
    checkpoints_.TakeHosted(pserver, hosted.cut(), job, now);
    CheckHeld(job, now);
  }
  if (const auto index = IndexOf(*job, pserver))
    takeover_.TakeHosted(job, *index, hosted, !adoption_.awaits(*job));
  if (hosted.error().empty()) {
    CheckStarting(job, now);
    AdvanceTakeover(job, now);
    return AdvanceReplacement(job, now);
  }
  // Ignore an error about an earlier route.
  if (hosted.generation() != job->spec.route().generation()) return;
  EndUnless(absl::AbortedError(absl::StrCat(DescribeMember(pserver), " of job ", job->job_id, ": ",
                                            hosted.error())),
            job, now);
}

void JobLifecycle::CheckStarting(Job* job, absl::Time now) {
  if (!job->opening_tables()) return;
  const JobOpening::Decision decision =
      job->opening.Decide(*job, *parts_.members, *parts_.pauses, options_.wait, now);
  if (decision.progressed) parts_.effects->StatusChanged(job);
  switch (decision.kind) {
    case JobOpening::Decision::kWait:
      return;
    case JobOpening::Decision::kRun:
      return Run(job, now);
    case JobOpening::Decision::kFail:
      return EndUnless(absl::DeadlineExceededError(decision.message), job, now);
  }
}

void JobLifecycle::Run(Job* job, absl::Time now) {
  job->state = JOB_RUNNING;
  job->message.clear();
  job->before.reset();
  plans_.Began(job);
  JobRun::Options run;
  run.config = &job->config;
  run.worker_num = job->spec.worker_num();
  run.save_id = SaveIdOf(*job);
  run.global_batch = job->spec.global_batch();
  run.resume = job->resume.get();
  run.ranks_close_steps = RanksCloseSteps(*job);
  job->run.emplace(run, now);
  if (job->steps) {
    job->steps->Restart(job->spec.worker_num());
  } else {
    job->steps.emplace(job->spec.worker_num());
  }
  checkpoints_.Begin(job, now);
  // The attempt has just been counted.
  const Recovery& counts = job->recovery.counts();
  if (counts.rollbacks() + counts.scalings() > 0) WriteRecoveryPoints(*job, now);
  parts_.effects->records()->PhaseBegan(*job);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  for (RankSlot& slot : job->ranks.slots) {
    Member* member = parts_.members->ById(slot.member_id());
    if (member == nullptr) continue;
    parts_.effects->DesiredChanged(member);
    slot.Assign(member->version);
  }
  AdvanceReplacement(job, now);
}

void JobLifecycle::WriteRecoveryPoints(const Job& job, absl::Time now) {
  if (!job.run || job.over()) return;
  uint32_t epoch = job.run->phases().current().epoch();
  // A run that continues first reads the data again, which is no epoch.
  if (job.resume != nullptr) epoch = std::max(epoch, job.resume->state().epoch());
  parts_.effects->WriteScalars(job, RecoveryPoints(job, epoch + 1), now);
}

void JobLifecycle::OutputBegun(Job* job, absl::Time now) {
  job->opening.OutputReady();
  CheckStarting(job, now);
}

// ----------------------------------------------------------------------------------- 3, 4: phases

absl::Status JobLifecycle::TakePhaseReport(Job* job, uint32_t rank, const PhaseReport& report,
                                           absl::Time now) {
  if (job->over() || !job->run) return absl::OkStatus();
  const Phase::Kind before = job->run->phases().current().kind();
  const absl::StatusOr<bool> news = job->run->phases().IsNews(rank, report.number());
  // Held, so that a checkpoint can be made of the epoch's end; async and Geo only.
  const bool was_held = job->run->held();
  job->run->Hold(job->checkpoints && !job->config.evaluate_only() &&
                 ModeOf(job->config.strategy()) != Mode::kSync);
  const bool was_unseen = job->run->unseen(rank);
  const absl::StatusOr<bool> taken = job->run->TakeReport(rank, report, now);
  if (!taken.ok() && Doubt(job, taken.status(), now))
    return absl::AbortedError(taken.status().message());
  SLUICE_RETURN_IF_ERROR(taken.status());
  bool advanced = *taken;
  if (was_unseen && !job->run->unseen(rank)) parts_.effects->records()->SawFiles(*job, rank);
  if (*news && (before == Phase::INDEX || before == Phase::TRAIN))
    parts_.effects->records()->Reported(*job, rank, report);
  if (!was_held && job->run->held()) checkpoints_.TrainingEnds(job, now);
  if (!advanced) advanced = ReleasePhase(job, now);
  PhaseMayHaveEnded(job, before, advanced, now);
  return absl::OkStatus();
}

void JobLifecycle::CheckHeld(Job* job, absl::Time now) {
  if (job->over() || !job->run || !job->checkpoints) return;
  const Phase::Kind before = job->run->phases().current().kind();
  const bool advanced = ReleasePhase(job, now);
  PhaseMayHaveEnded(job, before, advanced, now);
}

bool JobLifecycle::ReleasePhase(Job* job, absl::Time now) {
  job->run->Hold(job->checkpoints && job->checkpoints->holds_phase());
  return job->run->TryAdvance(now);
}

void JobLifecycle::PhaseMayHaveEnded(Job* job, Phase::Kind before, bool advanced, absl::Time now) {
  if (!job->run->failure().ok())
    return End(job, JOB_FAILED, std::string(job->run->failure().message()), now);
  if (!advanced) return;
  adoption_.PhaseEnded(*job);
  parts_.effects->records()->PhaseBegan(*job);
  // An epoch's figures and a trace's last spans arrive only with the members' next reports.
  const bool last_spans = job->finishing() && !job->config.trace_file().empty();
  if (before == Phase::TRAIN || last_spans) AskForReports(job);
  if (job->finishing()) job->finishing_since = now;
  checkpoints_.PhaseChanged(job, now);
  std::vector<Scalar> points = job->run->TakeScalars();
  if (before == Phase::TRAIN) AddRecoveryPoints(*job, &points);
  parts_.effects->WriteScalars(*job, std::move(points), now);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  CheckFinishing(job, now);
}

void JobLifecycle::AskForReports(Job* job) {
  std::vector<uint64_t> ids = job->pservers.members;
  for (const RankSlot& slot : job->ranks.slots) ids.push_back(slot.member_id());
  for (const uint64_t id : ids) {
    Member* member = parts_.members->ById(id);
    if (member == nullptr) continue;
    // A new version makes a member's waiting call return, and with it comes the report.
    parts_.effects->DesiredChanged(member);
    if (member->alive) parts_.requests->Ask(job->job_id, id, member->version);
  }
}

void JobLifecycle::CheckFinishing(Job* job, absl::Time now) {
  if (job->over() || !job->finishing()) return;
  // Restored shards must hear from every rank: only then is it known how many updates are lost.
  if (!job->pservers.vacant.empty()) return;
  if (job->checkpoints && job->checkpoints->finishes_job()) return;
  if (!parts_.requests->AllAnswered(job->job_id) &&
      parts_.pauses->Since(job->finishing_since, now) < options_.report_wait) {
    return;
  }
  End(job, JOB_DONE, "", now);
}

// ---------------------------------------------------------------------------------------- workers

void JobLifecycle::TakeProgress(const Member& worker, const WorkerProgress& progress, Job* job,
                                absl::Time now) {
  RankSlot* const slot = job->ranks.SlotOf(worker.id);
  if (slot == nullptr || slot->released()) return;
  const bool runs = progress.job_id() == job->job_id;
  if (!runs && slot->ConfirmsStop(worker.seen_version)) {
    attempts_.Release(job, slot);
    DropWhenReleased(job, now);
    return;
  }
  if (job->over() || job->state != JOB_RUNNING) return;
  // It was taken for a vacant rank and does not know that yet.
  if (job->ranks.vacant.count(static_cast<uint32_t>(slot - job->ranks.slots.data())) > 0) return;
  if (!runs) return CheckServing(job, worker, slot, now);
  // The worker has not stopped yet what it did in an earlier attempt.
  if (progress.incarnation() != slot->incarnation()) return;
  slot->SeenRunning();
  job->steps->Add(static_cast<uint32_t>(slot - job->ranks.slots.data()), progress);
  parts_.effects->WriteScalars(*job, job->steps->TakePoints(/*all=*/false), now);
  // Tick passes this on: waking the watchers at each report would be too often with many workers.
  job->progress_untold = true;
}

void JobLifecycle::CheckServing(Job* job, const Member& worker, RankSlot* slot, absl::Time now) {
  if (job->finishing()) return;
  const absl::Time idle_since = slot->SeenIdle(worker.seen_version, now);
  // Starting takes a moment, and reports can overtake each other: one that arrives now may have
  // been made before the worker started.
  const absl::Duration grace = slot->has_run() ? 2 * options_.heartbeat : options_.lease;
  if (parts_.pauses->Since(idle_since, now) < grace) return;
  End(job, JOB_FAILED,
      absl::StrCat(DescribeMember(worker), " of job ", job->job_id, ": the worker ",
                   slot->has_run() ? "no longer runs" : "does not run",
                   " the job and gave no reason; see its log"),
      now);
}

void JobLifecycle::MemberLost(Job* job, const Member& member, absl::Time now) {
  // Its next attempt does not use this pserver.
  if (member.self.role() == ROLE_PSERVER && job->awaits_members() &&
      std::count(job->pservers.ranks.begin(), job->pservers.ranks.end(), member.self.rank()) == 0) {
    return;
  }
  if (RankSlot* const slot = job->ranks.SlotOf(member.id)) attempts_.Release(job, slot);
  LossDecision decision = DecideMemberLoss(*job, member, FreeWorkers(job) > 0);
  // The other members may not know of it.
  if (adoption_.awaits(*job) && decision.kind == LossDecision::kReplaceRank)
    decision.kind = LossDecision::kRollback;
  if (!job->over() && !TakenForVacantRank(*job, member)) {
    job->recovery.CountLoss(member, now);
    WriteRecoveryPoints(*job, now);
    // The next scheduler cannot learn it from a job that lacks a member.
    if (job->run) {
      const JobStatus status = MakeJobStatus(*job, *parts_.members);
      job->recovery.NoteReached(status.global_step(), status.examples());
    }
  }
  // Gives reserved workers back, which may be needed now.
  if (decision.kind != LossDecision::kGoesOn && !TakenForVacantRank(*job, member)) {
    plans_.Drop(job, absl::StrCat(DescribeMember(member),
                                  " was lost before the checkpoint for that was complete"));
  }
  switch (decision.kind) {
    case LossDecision::kGoesOn:
      // A checkpoint of the last step may wait for the member's part.
      checkpoints_.MemberLost(job, member, now);
      if (!job->over()) takeover_.GiveUp(job);
      break;
    case LossDecision::kReplaceRank:
      if (job->ranks.removal) {
        // Its last steps are needed as well, and the next attempt waits for a worker in its place.
        RemoveRank(job, job->ranks.by_member.at(member.id), /*leave_out=*/false, decision.message,
                   now);
      } else {
        ReplaceRank(job, job->ranks.by_member.at(member.id), decision.message, now);
      }
      break;
    case LossDecision::kTakeOver:
      TakeOverShards(job, member, decision.message, now);
      break;
    case LossDecision::kRollback:
      if (job->ranks.removal) {
        ShrinkAndRollBack(job, job->ranks.removal->ranks.size(), decision.message, now);
      } else {
        RollBack(job, now);
      }
      break;
    case LossDecision::kShrink:
      if (!adoption_.awaits(*job) && (job->ranks.removal || RankRemoval::CanBegin(*job).ok()) &&
          (!WorkersKeepTables(*job) || OthersHoldTables(*job, member))) {
        RemoveRank(job, job->ranks.by_member.at(member.id), /*leave_out=*/true, decision.message,
                   now);
        break;
      }
      // An attempt that runs could have continued at another moment.
      if (job->run && !adoption_.awaits(*job)) {
        const absl::Status can = RankRemoval::CanBegin(*job);
        ShrinkAndRollBack(
            job, job->ranks.removal ? job->ranks.removal->ranks.size() + 1 : 1,
            can.ok() ? "no other worker holds the dense tables" : std::string(can.message()), now);
        break;
      }
      // A job that is waiting for its remaining workers to stop may still have more of them than
      // the next attempt needs.
      if (!job->awaits_members() || attempts_.Count(*job) < job->spec.worker_num())
        next_attempt_.Shrink(job, /*ranks=*/1);
      RollBack(job, now);
      break;
    case LossDecision::kFails:
      End(job, JOB_FAILED, decision.message, now);
      break;
  }
  if (!job->over()) parts_.effects->records()->Changed(*job);
  // The member may have been the last one to owe a report, or to serve an ended job.
  CheckFinishing(job, now);
  DropWhenReleased(job, now);
}

uint32_t JobLifecycle::FreeWorkers(Job* job) const {
  uint32_t free = 0;
  for (const Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    // One that is only reserved for the job is given back when its plan is dropped.
    const bool reserved = !job->awaits_members() && worker->job_id == job->job_id &&
                          job->ranks.SlotOf(worker->id) == nullptr;
    free += worker->free() || reserved;
  }
  return free;
}

// ------------------------------------------------------------------------------------ replacement

void JobLifecycle::ReplaceRank(Job* job, uint32_t rank, const std::string& why, absl::Time now) {
  replacement_.Lose(job, rank, attempts_.NewIncarnation(), why, now);
  TellRanks(*job);
  parts_.effects->records()->MembersChanged(*job);
  checkpoints_.RankLost(job, rank, now);
  CheckHeld(job, now);
  AdvanceReplacement(job, now);
}

void JobLifecycle::RemoveRank(Job* job, uint32_t rank, bool leave_out, const std::string& why,
                              absl::Time now) {
  replacement_.Lose(job, rank, attempts_.NewIncarnation(), why, now);
  TellRanks(*job);
  parts_.effects->records()->MembersChanged(*job);
  removal_.Lose(job, rank, leave_out, why, now);
  AdvanceRemoval(job, now);
}

void JobLifecycle::AdvanceRemoval(Job* job, absl::Time now) {
  if (job->over() || job->state != JOB_RUNNING) return;
  const absl::StatusOr<bool> done = removal_.Advance(job, now);
  const size_t ranks = job->ranks.removal->ranks.size();
  if (!done.ok()) return ShrinkAndRollBack(job, ranks, std::string(done.status().message()), now);
  if (!*done) return;
  job->ranks.removal.reset();
  next_attempt_.Shrink(job, static_cast<uint32_t>(ranks));
  job->recovery.WaitFrom(now);
  job->recovery.ContinueInPlace();
  RollBack(job, now);
}

void JobLifecycle::ShrinkAndRollBack(Job* job, size_t ranks, const std::string& why,
                                     absl::Time now) {
  job->ranks.removal.reset();
  next_attempt_.Shrink(job, static_cast<uint32_t>(ranks));
  job->recovery.WaitFrom(now);
  AddWarning(job, absl::StrCat("the job lost a worker and could not continue where it was, so it ",
                               "went back to its newest checkpoint: ", why));
  RollBack(job, now);
}

void JobLifecycle::TellRanks(const Job& job) {
  if (!WorkersKeepTables(job)) return;
  for (const RankSlot& slot : job.ranks.slots) {
    if (Member* member = parts_.members->ById(slot.member_id()))
      parts_.effects->DesiredChanged(member);
  }
}

void JobLifecycle::TakeGroup(const Member& worker, const RankGroupReport& report, Job* job,
                             absl::Time now) {
  if (job->over() || job->state != JOB_RUNNING || !WorkersKeepTables(*job)) return;
  const RankSlot* const slot = job->ranks.SlotOf(worker.id);
  if (slot == nullptr || report.job_id() != job->job_id ||
      slot->incarnation() != report.incarnation() ||
      report.rank() != job->ranks.by_member.at(worker.id) ||
      report.totals_size() > static_cast<int>(job->ranks.slots.size())) {
    return;
  }
  if (!job->cards.Take(report)) return;
  // Also when another loss has raised the generation since: the ranks that gave up have ended.
  if (!report.error().empty()) {
    job->recovery.NoteCause(
        absl::StrCat(DescribeMember(worker), " of job ", job->job_id, ": ", report.error()), now);
    return RollBack(job, now);
  }
  if (!job->cards.Of(job->spec.route().generation(), job->ranks.slots).empty()) TellRanks(*job);
  if (job->ranks.removal) AdvanceRemoval(job, now);
}

void JobLifecycle::AdvanceReplacement(Job* job, absl::Time now) {
  if (job->ranks.removal) return AdvanceRemoval(job, now);
  std::vector<uint32_t> settled;
  const absl::Status status = replacement_.Advance(job, now, &settled);
  // Until now the lost life, which may only have been slow, could continue to other steps and cuts.
  for (const uint32_t rank : settled) checkpoints_.RankLost(job, rank, now);
  // A worker left in order, and no replacement came in time.
  if (absl::IsDeadlineExceeded(status) && ShrinksOnLoss(*job)) {
    std::vector<uint32_t> fewer;
    for (const auto& [rank, vacancy] : job->ranks.vacant) {
      if (job->ranks.slots[rank].member_id() == 0 && fewer.size() + 1 < job->spec.worker_num())
        fewer.push_back(rank);
    }
    const std::string why(status.message());
    const absl::Status in_place = RankRemoval::CanBegin(*job);
    if (!fewer.empty()) job->recovery.NoteCause(why, now);
    if (!fewer.empty() && !in_place.ok())
      return ShrinkAndRollBack(job, fewer.size(), std::string(in_place.message()), now);
    for (const uint32_t rank : fewer) removal_.Lose(job, rank, /*leave_out=*/true, why, now);
    if (!fewer.empty()) return AdvanceRemoval(job, now);
  }
  EndUnless(status, job, now);
}

void JobLifecycle::FillVacancies(absl::Time now) {
  for (Job* job : parts_.jobs->active()) {
    if (!job->pservers.vacant.empty()) AdvanceTakeover(job, now);
    if (!job->ranks.vacant.empty()) AdvanceReplacement(job, now);
  }
}

void JobLifecycle::TakeOverShards(Job* job, const Member& lost, const std::string& why,
                                  absl::Time now) {
  const uint32_t index = *IndexOf(*job, lost);
  if (!job->newest_unusable.ok() && CheckpointLifecycle::NewestOfInstance(*job).empty())
    return EndUnless(job->newest_unusable, job, now);
  takeover_.Lose(job, index, why, now);
  parts_.effects->records()->MembersChanged(*job);
  checkpoints_.PserverVacant(job, index, now);
  CheckHeld(job, now);
  AdvanceTakeover(job, now);
}

void JobLifecycle::AdvanceTakeover(Job* job, absl::Time now) {
  EndUnless(takeover_.Advance(job, now), job, now);
}

// ----------------------------------------------------------------------------------- next attempt

void JobLifecycle::RollBack(Job* job, absl::Time now) {
  if (job->ranks.removal)
    return ShrinkAndRollBack(job, job->ranks.removal->ranks.size(), job->recovery.counts().last(),
                             now);
  EndUnless(next_attempt_.RollBack(job, now), job, now);
}

void JobLifecycle::Recover(Job* job, absl::Time now) {
  EndUnless(next_attempt_.Advance(job, now), job, now);
}

void JobLifecycle::RecoverJobs(absl::Time now) {
  for (Job* job : std::vector<Job*>(next_attempt_.waiting())) Recover(job, now);
}

// ------------------------------------------------------------------------- planned next attempts

void JobLifecycle::DrainingChanged(absl::Time now) {
  for (Job* job : std::vector<Job*>(parts_.jobs->active())) {
    plans_.CancelDrain(job);
    plans_.Drain(job, now);
    // A draining pserver gets no replacement, so nobody takes over its shards if it is lost.
    for (const auto& [index, vacancy] : job->pservers.vacant) {
      if (job->pservers.members[index] != 0 || parts_.members->UsablePservers().empty()) continue;
      if (parts_.members->draining().count(job->pservers.ranks[index]) == 0) continue;
      job->recovery.NoteCause(vacancy.why, now);
      RollBack(job, now);
      break;
    }
  }
}

std::vector<std::string> JobLifecycle::JobsOn(uint32_t pserver) const {
  std::vector<std::string> jobs;
  for (const Job* job : parts_.jobs->active()) {
    if (UsesPserver(*job, pserver)) jobs.push_back(job->job_id);
  }
  return jobs;
}

bool JobLifecycle::UsesPserver(const Job& job, uint32_t rank) const {
  const std::vector<uint32_t>& ranks = job.pservers.ranks;
  if (job.over()) return false;
  if (plans_.MayGoBackTo(job, rank)) return true;
  return job.hosted && std::count(ranks.begin(), ranks.end(), rank) > 0;
}

void JobLifecycle::DrainAgain(uint32_t pserver) {
  for (Job* job : parts_.jobs->active()) {
    if (UsesPserver(*job, pserver)) plans_.DrainAgain(job);
  }
}

std::string JobLifecycle::WhyAllStay(uint32_t pserver) {
  std::vector<std::string> reasons;
  std::vector<const Job*> jobs;
  for (const Job* job : parts_.jobs->active()) {
    if (!UsesPserver(*job, pserver)) continue;
    const std::string* const why = plans_.WhyStays(job);
    if (why == nullptr) return "";
    reasons.push_back(absl::StrCat("job ", job->job_id, ": ", *why));
    jobs.push_back(job);
  }
  for (const Job* job : jobs) plans_.ToldWhyStays(job);
  return absl::StrJoin(reasons, "; ");
}

void JobLifecycle::AdvancePlan(Job* job, absl::Time now) {
  const std::optional<AttemptPlans::Due> due = plans_.Take(job, now);
  if (due) EndUnless(next_attempt_.Replace(job, due->worker_num, due->what, now), job, now);
}

void JobLifecycle::EndUnless(const absl::Status& status, Job* job, absl::Time now) {
  if (status.ok() || GoBack(status, job, now)) return;
  End(job, JOB_FAILED, std::string(status.message()), now);
}

bool JobLifecycle::GoBack(const absl::Status& why, Job* job, absl::Time now) {
  // If members are missing as well, the job would only wait once more.
  if (job->over() ||
      (job->awaits_members() && absl::IsDeadlineExceeded(why) && !plans_.CanGoBack(*job))) {
    return false;
  }
  const std::optional<std::string> cause = plans_.GoBack(job, std::string(why.message()));
  if (!cause) return false;
  job->recovery.NoteCause(*cause, now);
  RollBack(job, now);
  return true;
}

// ------------------------------------------------------------------------------------- checkpoints

void JobLifecycle::TakeCut(const Member& worker, const WorkerCut& cut, Job* job, absl::Time now) {
  checkpoints_.TakeWorker(worker, cut, job, now);
  CheckHeld(job, now);
}

absl::StatusOr<CheckpointJobReply> JobLifecycle::Checkpoint(Job* job, uint64_t number,
                                                            absl::Time now) {
  return checkpoints_.Demand(job, number, now);
}

void JobLifecycle::CheckpointWritten(Job* job, uint64_t number, const absl::Status& status,
                                     const std::string& warning, absl::Time now) {
  checkpoints_.Written(job, number, status, warning, now);
  if (status.ok()) WriteRecoveryPoints(*job, now);
  if (job->ranks.removal) AdvanceRemoval(job, now);
  Recover(job, now);
  AdvanceTakeover(job, now);
  AdvancePlan(job, now);
  CheckFinishing(job, now);
}

void JobLifecycle::Tick(Job* job, absl::Time now) {
  if (adoption_.late(*job, now)) {
    const uint32_t missing = adoption_.MissingWorkers(*job);
    const uint32_t replaced = std::min(missing, FreeWorkers(job));
    if (ShrinksOnLoss(*job) && missing > replaced) next_attempt_.Shrink(job, missing - replaced);
    RefuteAdoption(job, absl::DeadlineExceededError(job->message), now);
  }
  checkpoints_.Tick(job, now);
  CheckHeld(job, now);
  if (job->progress_untold) parts_.effects->StatusChanged(job);
  CheckStarting(job, now);
  Recover(job, now);
  AdvanceTakeover(job, now);
  AdvanceReplacement(job, now);
  // The job was starting or lacked a member when the pserver was marked.
  plans_.Drain(job, now);
  AdvancePlan(job, now);
  CheckFinishing(job, now);
  DropWhenReleased(job, now);
}

// ---------------------------------------------------------------------------------- 5, 6, 7: end

void JobLifecycle::End(Job* job, JobState outcome, const std::string& message, absl::Time now) {
  if (job->over()) return;
  adoption_.End(job);
  parts_.effects->records()->RunEnded(job->job_id);
  job->outcome = outcome;
  job->message = Sentence(message);
  job->queue_position = 0;
  job->ended_at = now;
  checkpoints_.End(job, now);
  // First make the result: it needs the workers' last reports and the work, which go away below.
  job->result = MakeJobResult(*job, *parts_.members);
  // Before the result is written: a job whose record has no outcome is run on.
  parts_.effects->records()->Changed(*job);
  if (parts_.queue->Remove(job)) parts_.jobs->Activate(job);
  next_attempt_.Forget(job);
  plans_.Forget(job);
  attempts_.GiveBack(job);
  parts_.requests->DropJob(job->job_id);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  if (job->run) {
    parts_.effects->WriteLastScalars(job, now);
    job->run->DropWork();
  }
  OutputAction ended = ActionOf(*job, OutputAction::kEnded, now);
  ended.config.set_worker_num(job->spec.worker_num());
  ended.result = job->result;
  ended.save_id = SaveIdOf(*job);
  parts_.effects->Write(std::move(ended));
  job->pservers.vacant.clear();
  job->ranks.removal.reset();
  // Workers that were taken for vacant ranks know nothing of the job.
  for (const auto& [rank, vacancy] : std::exchange(job->ranks.vacant, {}))
    attempts_.Release(job, &job->ranks.slots[rank]);
  // The ranks of a job that is done learn of the end from their next phase, so they stay.
  for (RankSlot& slot : job->ranks.slots) {
    if (outcome != JOB_DONE && slot.serving()) attempts_.Withdraw(&slot);
  }
  DropWhenReleased(job, now);
}

void JobLifecycle::TellEnd(RankSlot* slot) {
  if (slot->serving()) attempts_.Withdraw(slot);
}

void JobLifecycle::DropWhenReleased(Job* job, absl::Time now) {
  if (!job->over() || !job->hosted) return;
  // After a lease, drop the tables even if a worker never confirms that it has stopped.
  if (!job->released() && now - job->ended_at < options_.lease) return;
  for (RankSlot& slot : job->ranks.slots) TellEnd(&slot);
  job->hosted = false;
  attempts_.TellPservers(*job);
}

void JobLifecycle::OutputEnded(Job* job, const absl::Status& status) {
  if (!job->over()) return;
  if (!status.ok()) {
    // When the output folder was refused at the start, the message already says so.
    const std::string why = Sentence(status.message());
    if (!absl::StrContains(job->message, why)) {
      absl::StrAppend(&job->message, job->message.empty() ? "" : "; ",
                      "the result could not be written: ", why);
    }
    job->outcome = JOB_FAILED;
    job->result.set_status("failed");
    job->result.clear_model_dir();
    job->result.clear_model_digest();
    job->result.set_message(job->message);
  }
  job->state = job->outcome;
  // While an earlier scheduler has the folder, the record stays: the next one writes the result.
  if (!absl::IsAborted(status)) parts_.effects->records()->Dropped(job->job_id);
  parts_.effects->StatusChanged(job);
}

}  // namespace sluice
