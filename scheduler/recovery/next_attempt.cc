#include "scheduler/recovery/next_attempt.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/config/mode.h"
#include "scheduler/recovery/member_loss.h"
#include "scheduler/registry/job_status.h"

namespace sluice {

absl::Status NextAttempt::RollBack(Job* job, absl::Time now) {
  absl::Status restartable;
  if (!job->awaits_members()) {
    EndPresent(job, now);
    // The run, which used the point where it began, is gone.
    if (std::optional<JobAdoption::Newest> newest = parts_.adoption->End(job)) {
      restartable = newest->status();
      if (restartable.ok()) job->attempt.SetPoint(*std::move(*newest));
    }
    for (RankSlot& slot : job->ranks.slots()) {
      // The survivors stop and stay reserved. The next attempt begins when all of them have
      // confirmed.
      if (slot.serving()) parts_.attempts->Withdraw(&slot);
    }
    parts_.attempts->TellPservers(*job);
    parts_.effects->PhaseChanged(*job);
    waiting_.push_back(job);
  }
  parts_.queue->MembersChanged();
  SLUICE_RETURN_IF_ERROR(restartable);
  return Advance(job, now);
}

absl::Status NextAttempt::Replace(Job* job, uint32_t worker_num, const std::string& what,
                                  absl::Time now) {
  job->recovery.Plan(what, now);
  job->attempt.SetWorkerNum(worker_num);
  // The next scheduler waits for as many, if this one dies before the attempt begins.
  parts_.effects->records()->Changed(*job);
  return RollBack(job, now);
}

void NextAttempt::Shrink(Job* job, uint32_t ranks) {
  const uint32_t fewer = std::min(ranks, job->spec().worker_num() - 1);
  job->attempt.SetWorkerNum(job->spec().worker_num() - fewer);
  job->recovery.CountShrink(fewer);
  parts_.effects->records()->Changed(*job);
}

void NextAttempt::EndPresent(Job* job, absl::Time now) {
  parts_.effects->records()->RunEnded(job->id());
  if (job->run()) {
    const JobStatus status = MakeJobStatus(*job, *parts_.members);
    job->recovery.NoteReached(status.global_step(), status.examples());
  }
  job->course.Recover();
  // Before the run goes away: it describes the job for the manifest of a checkpoint that has all
  // its parts.
  parts_.checkpoints->Interrupt(job, now);
  // The points of the attempt that is lost. Its run goes away below.
  if (job->run()) parts_.effects->WriteLastScalars(job, now);
  // Reports that were asked for are of ranks that stop now.
  parts_.requests->DropJob(job->id());
  job->ranks.EndAttempt();
  job->pservers.EndAttempt();
  job->gathers.EndAttempt();
  job->attempt.End();
}

void NextAttempt::CountAttempt(Job* job) {
  uint64_t steps = 0, examples = 0;
  if (job->attempt.point() != nullptr) {
    const CheckpointState& state = job->attempt.point()->state();
    // In async and Geo the steps of a job are those of all its workers.
    const bool sync = ModeOf(job->config().strategy()) == Mode::kSync;
    steps = sync ? state.global_step() : state.result().global_step();
    examples = state.result().examples();
    for (const WorkerState& worker : state.workers()) {
      examples += worker.train().examples();
      if (!sync) steps += worker.train().steps();
    }
  }
  const std::string dir = job->attempt.point() == nullptr ? "" : job->attempt.point()->dir;
  // Asked before BeginAttempt, which forgets both.
  const bool planned = job->recovery.planned();
  const bool in_place = job->recovery.in_place();
  job->recovery.BeginAttempt(steps, examples, dir);
  // The ranks are still those of the attempt before.
  const uint32_t workers = job->spec().worker_num();
  if (planned || workers >= job->ranks.slots().size()) return;
  const std::string where =
      in_place ? absl::StrCat("continued after step ", steps)
               : absl::StrCat("went back to ", dir.empty() ? "its beginning" : dir);
  job->recovery.Describe(
      absl::StrCat("the job ", where, ", with ", workers, workers == 1 ? " worker" : " workers"));
}

absl::Status NextAttempt::Advance(Job* job, absl::Time now) {
  if (!job->awaits_members()) return absl::OkStatus();
  // Its instance and generation must be kept before a member hears of them.
  if (const std::string& refused = parts_.effects->records()->refused(); !refused.empty()) {
    if (job->course.Say(absl::StrCat("waits for the state store: ", refused)))
      parts_.effects->StatusChanged(job);
    return absl::OkStatus();
  }
  // At every try: a pserver may have been marked while the job waited.
  parts_.attempts->AvoidDraining(job);
  const uint32_t workers = parts_.attempts->Reserve(job, job->spec().worker_num());
  const absl::Duration wait = job->config().recovery().has_wait_s()
                                  ? absl::Seconds(job->config().recovery().wait_s())
                                  : wait_;
  const auto decide = [&] {
    return job->recovery.Decide(*job, *parts_.members, *parts_.pauses, wait, now);
  };
  JobRecovery::Decision decision = decide();
  // Time is up. A job that may shrink goes on with the workers that it has; any other one fails
  // below.
  if (decision.kind == JobRecovery::Decision::kFail && workers < job->spec().worker_num() &&
      workers > 0 && ShrinksOnLoss(*job)) {
    Shrink(job, job->spec().worker_num() - workers);
    decision = decide();
  }
  if (decision.kind == JobRecovery::Decision::kFail)
    return absl::DeadlineExceededError(decision.message);
  if (decision.kind == JobRecovery::Decision::kWait) {
    if (job->course.Say(decision.message)) parts_.effects->StatusChanged(job);
    return absl::OkStatus();
  }
  SLUICE_RETURN_IF_ERROR(ChooseBeginning(job));
  // After the beginning is chosen, from which the repeated steps are counted.
  CountAttempt(job);
  job->course.Say(job->recovery.counts().last());
  parts_.attempts->SetNewInstance(job);
  // Before the attempt makes checkpoints: these are the job's own only once the record says so.
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
  SLUICE_RETURN_IF_ERROR(parts_.attempts->Begin(job, now));
  Forget(job);
  return absl::OkStatus();
}

absl::Status NextAttempt::ChooseBeginning(Job* job) {
  if (std::unique_ptr<const ResumePoint> newest = parts_.checkpoints->NewestPoint(*job)) {
    job->attempt.SetPoint(std::move(newest));
    job->ledger.SetNewestUnusable(absl::OkStatus());
  }
  SLUICE_RETURN_IF_ERROR(job->ledger.newest_unusable());
  job->attempt.TellPoint();
  return absl::OkStatus();
}

void NextAttempt::Forget(const Job* job) {
  // Also for jobs that do not wait: End calls this for every job.
  waiting_.erase(std::remove(waiting_.begin(), waiting_.end(), job), waiting_.end());
}

}  // namespace sluice
