#include "scheduler/core/job_lifecycle.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/daemon/table_rows.h"
#include "scheduler/core/request_text.h"
#include "scheduler/job/resume_point.h"
#include "scheduler/recovery/member_loss.h"
#include "scheduler/registry/job_status.h"

namespace sluice {
namespace {

// Adds what losses have cost to the points of an epoch that has ended.
void AddRecoveryPoints(const Job& job, std::vector<Scalar>* points) {
  if (points->empty()) return;
  for (Scalar& point : RecoveryPoints(job, points->back().step))
    points->push_back(std::move(point));
}

}  // namespace

// ------------------------------------------------------------------------------------ 1, 2: start

JobLifecycle::JobLifecycle(Options options, Parts parts)
    : options_(std::move(options)),
      parts_(parts),
      checkpoints_(options_.wait, {parts.members, parts.pauses, parts.effects}),
      deletions_(options_.wait, options_.first_id, {parts.members, parts.pauses, parts.effects}),
      attempts_({options_.first_id, options_.place}, {parts.members, parts.queue, parts.effects}),
      adoption_(options_.lease, {parts.members, parts.jobs, parts.pauses, parts.effects,
                                 &checkpoints_, &attempts_}),
      next_attempt_(options_.wait, {parts.members, parts.queue, parts.requests, parts.pauses,
                                    parts.effects, &checkpoints_, &attempts_, &adoption_}),
      plans_({parts.members, parts.jobs, parts.effects, &checkpoints_, &attempts_}),
      losses_(options_.wait, {parts.members, parts.queue, parts.pauses, parts.effects,
                              &checkpoints_, &attempts_, &adoption_, &next_attempt_, &plans_}) {}

void JobLifecycle::Start(Job* job, absl::Time now) {
  parts_.queue->Remove(job);
  parts_.jobs->Activate(job);
  job->course.LeaveQueue();
  // Not those of the record: a damaged record of a job that waits could name some.
  std::vector<uint32_t> pservers;
  for (const Member* pserver : parts_.members->UsablePservers())
    pservers.push_back(pserver->self.rank());
  job->pservers.Choose(std::move(pservers));
  const absl::Status begun = attempts_.Begin(job, now);
  // Before the state changes: a job that could not be placed has not begun.
  if (!begun.ok()) return EndUnless(begun, job, now);
  job->course.Start();
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
  OutputAction started = ActionOf(*job, OutputAction::kStarted, now);
  if (const ResumePoint* const point = job->attempt.point(); started.resumes && point != nullptr) {
    const CheckpointState& state = point->state();
    const bool sync = ModeOf(job->config().strategy()) == Mode::kSync;
    started.curve_from = {sync ? state.global_step() : MeanSteps(state), state.epoch(),
                          absl::UnixEpoch() + absl::Seconds(state.unix_time())};
  }
  parts_.effects->Write(std::move(started));
}

void JobLifecycle::Restore(Job* job, const Recovery& counts, absl::Time now) {
  parts_.jobs->Activate(job);
  job->course.Recover();
  job->recovery.Restore(counts, now);
  if (const ResumePoint* const point = job->attempt.point())
    job->attempt.RestoreBefore(point->state().result());
  // There is no run to end: the job only waits for members, like one whose attempt was lost here.
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
  if (job->over() || job->state() != JOB_RUNNING) return;
  parts_.effects->Log(
      *job, absl::StrCat("the run of the earlier scheduler cannot continue: ", why.message()));
  // Its checkpoint belongs to the attempt that is refuted.
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
  // Before the call, which moves it on.
  const uint64_t last = job->run()->last_request(request.rank());
  absl::StatusOr<NextTaskReply> reply = job->run()->NextTask(request);
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
  parts_.effects->StatusChanged(job);
  OutputAction ended = ActionOf(*job, OutputAction::kEnded, now);
  ended.config.set_worker_num(job->spec().worker_num());
  ended.result = job->course.result();
  ended.save_id = SaveIdOf(*job);
  ended.again = true;
  parts_.effects->Write(std::move(ended));
}

void JobLifecycle::TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job,
                              absl::Time now) {
  if (job->over() || !job->attempt.hosted() || HostedOf(*job, pserver) == nullptr) return;
  deletions_.TakeHosted(pserver, hosted, job, now);
  // The cut first: it may complete a checkpoint that the phase waits for, even if the same report
  // has an error.
  if (hosted.has_cut()) {
    checkpoints_.TakeHosted(pserver, hosted.cut(), job, now);
    CheckHeld(job, now);
  }
  deletions_.Advance(job, now);
  if (const auto index = job->pservers.IndexOf(pserver.id)) losses_.TakeHosted(job, *index, hosted);
  if (hosted.error().empty()) {
    WarnOfLimits(hosted, job);
    CheckStarting(job, now);
    return AdvanceLosses(job, now);
  }
  // Ignore an error about an earlier route.
  if (hosted.generation() != job->spec().route().generation()) return;
  EndUnless(absl::AbortedError(
                absl::StrCat(DescribeMember(pserver), " of job ", job->id(), ": ", hosted.error())),
            job, now);
}

void JobLifecycle::WarnOfLimits(const HostedJob& hosted, Job* job) {
  // A pserver reports the tables in their order.
  const int tables = std::min(hosted.tables_size(), job->spec().tables_size());
  for (int t = 0; t < tables; ++t) {
    const std::string warning = RowLimitWarning(hosted.tables(t), job->spec().tables(t));
    if (warning.empty() || !job->AddWarning(warning)) continue;
    parts_.effects->Log(*job, absl::StrCat("warning: ", warning));
    parts_.effects->records()->Changed(*job);
    parts_.effects->StatusChanged(job);
  }
}

void JobLifecycle::CheckStarting(Job* job, absl::Time now) {
  if (!job->opening_tables() || !parts_.effects->records()->refused().empty()) return;
  const JobOpening::Decision decision =
      job->attempt.opening().Decide(*job, *parts_.members, *parts_.pauses, options_.wait, now);
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
  job->course.Run();
  // The planned attempt runs, so the members of the attempt before are no longer needed.
  plans_.Began(job);
  JobRun::Options run;
  run.config = &job->config();
  run.worker_num = job->spec().worker_num();
  run.instance = job->spec().instance();
  run.save_id = SaveIdOf(*job);
  run.global_batch = job->spec().global_batch();
  run.resume = job->attempt.point();
  run.ranks_close_steps = RanksCloseSteps(*job);
  run.early_end = job->course.early_end();
  job->attempt.Run(run, now);
  checkpoints_.Begin(job, now);
  deletions_.RunBegins(job, now);
  // The attempt has just been counted.
  const Recovery& counts = job->recovery.counts();
  if (counts.rollbacks() + counts.scalings() > 0) parts_.effects->WriteRecoveryPoints(*job, now);
  parts_.effects->records()->PhaseBegan(*job);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  for (RankSlot& slot : job->ranks.slots()) {
    Member* member = parts_.members->ById(slot.member_id());
    if (member == nullptr) continue;
    parts_.effects->DesiredChanged(member);
    // This version tells the worker of the attempt. Reports that have not seen it say nothing about
    // the attempt.
    slot.Assign(member->version);
  }
  AdvanceLosses(job, now);
}

void JobLifecycle::OutputBegun(Job* job, absl::Time now) {
  job->attempt.opening().OutputReady();
  CheckStarting(job, now);
}

// ----------------------------------------------------------------------------------- 3, 4: phases

absl::Status JobLifecycle::TakePhaseReport(Job* job, uint32_t rank, const PhaseReport& report,
                                           absl::Time now) {
  if (job->over() || !job->run()) return absl::OkStatus();
  const Phase::Kind before = job->run()->phases().current().kind();
  // Asked first: TakeReport may move on to the next phase, in which this report would look old.
  const absl::StatusOr<bool> news = job->run()->phases().IsNews(rank, report.number());
  if (rank == 0 && news.ok() && *news) checkpoints_.TakeNamed(job, report, now);
  // Held, so that a checkpoint can be made of the epoch's end.
  job->run()->Hold(CanCheckpoint(job->config()));
  const bool was_unseen = job->run()->unseen(rank);
  const absl::StatusOr<bool> taken = job->run()->TakeReport(rank, report, now);
  if (!taken.ok() && Doubt(job, taken.status(), now))
    return absl::AbortedError(taken.status().message());
  SLUICE_RETURN_IF_ERROR(taken.status());
  bool advanced = *taken;
  if (was_unseen && !job->run()->unseen(rank)) parts_.effects->records()->SawFiles(*job, rank);
  if (*news && (before == Phase::INDEX || before == Phase::TRAIN))
    parts_.effects->records()->Reported(*job, rank, report);
  // The phase ends at once when no checkpoint is due at the end of this epoch.
  if (!advanced) advanced = ReleasePhase(job, now);
  PhaseMayHaveEnded(job, before, advanced, now);
  return absl::OkStatus();
}

void JobLifecycle::CheckHeld(Job* job, absl::Time now) {
  if (job->over() || !job->run() || !job->checkpoints()) return;
  const Phase::Kind before = job->run()->phases().current().kind();
  const bool advanced = ReleasePhase(job, now);
  PhaseMayHaveEnded(job, before, advanced, now);
}

bool JobLifecycle::ReleasePhase(Job* job, absl::Time now) {
  // A job that is being adopted makes no checkpoints yet. The end of its epoch waits for that.
  if (!job->checkpoints() && CanCheckpoint(job->config())) return false;
  if (job->run()->ended_training()) checkpoints_.TrainingEnds(job, now);
  job->run()->Hold(job->checkpoints() && job->checkpoints()->holds_phase());
  return job->run()->TryAdvance(now);
}

void JobLifecycle::PhaseMayHaveEnded(Job* job, Phase::Kind before, bool advanced, absl::Time now) {
  if (!job->run()->failure().ok())
    return End(job, JOB_FAILED, std::string(job->run()->failure().message()), now);
  if (!advanced) return;
  adoption_.PhaseEnded(*job);
  parts_.effects->records()->PhaseBegan(*job);
  // An epoch's figures and a trace's last spans arrive only with the members' next reports.
  if (before == Phase::SAVE) DropModels(*job, now);
  const bool last_spans = job->finishing() && !job->config().trace_file().empty();
  if (before == Phase::TRAIN || last_spans) AskForReports(job);
  if (job->finishing()) job->course.Finish(now);
  checkpoints_.PhaseChanged(job, now);
  std::vector<Scalar> points = job->run()->TakeScalars();
  if (before == Phase::TRAIN) AddRecoveryPoints(*job, &points);
  parts_.effects->WriteScalars(*job, std::move(points), now);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  CheckFinishing(job, now);
}

void JobLifecycle::DropModels(const Job& job, absl::Time now) {
  if (job.config().checkpoint().save() != CheckpointConfig::BEST || !job.run() || job.over())
    return;
  OutputAction action = ActionOf(job, OutputAction::kModels, now);
  action.number = job.run()->result().epochs();
  action.instances = job.attempt.instances();
  action.save_ids = job.run()->NamedModels();
  if (job.checkpoints() && job.checkpoints()->open_state() != nullptr)
    action.save_ids.push_back(job.checkpoints()->open_state()->result().best().save_id());
  parts_.effects->Write(std::move(action));
}

void JobLifecycle::AskForReports(Job* job) {
  std::vector<uint64_t> ids = job->pservers.members();
  for (const RankSlot& slot : job->ranks.slots()) ids.push_back(slot.member_id());
  for (const uint64_t id : ids) {
    Member* member = parts_.members->ById(id);
    if (member == nullptr) continue;
    // A new version makes a member's waiting call return, and with it comes the report.
    parts_.effects->DesiredChanged(member);
    if (member->alive) parts_.requests->Ask(job->id(), id, member->version);
  }
}

void JobLifecycle::CheckFinishing(Job* job, absl::Time now) {
  if (job->over() || !job->finishing()) return;
  // Restored shards must hear from every rank: only then is it known how many updates are lost.
  if (!job->pservers.vacant().empty()) return;
  // The checkpoint of the last step is promised to the user, and nothing else would wait for it.
  if (job->checkpoints() && job->checkpoints()->finishes_job()) return;
  if (!parts_.requests->AllAnswered(job->id()) &&
      parts_.pauses->Since(job->course.finishing_since(), now) < options_.report_wait) {
    return;
  }
  End(job, JOB_DONE, "", now);
}

absl::Status JobLifecycle::EndEarly(Job* job, EarlyEnd end, absl::Time now) {
  const Mode mode = ModeOf(job->config().strategy());
  // Each rank ends after the step that it is in.
  if (mode != Mode::kSync) end.set_last_step(0);
  // The reply to an earlier call may have been lost.
  const std::optional<EarlyEnd>& known = job->course.early_end();
  if (known && known->last_step() <= end.last_step()) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(job->run()->CheckEarlyEnd(end));
  job->course.EndEarly(end);
  job->run()->EndEarly(end);
  parts_.effects->records()->EndsEarly(*job);
  parts_.effects->records()->Changed(*job);
  for (const RankSlot& slot : job->ranks.slots()) {
    if (Member* member = parts_.members->ById(slot.member_id()))
      parts_.effects->DesiredChanged(member);
  }
  parts_.effects->Log(*job, "a program has left its loop, so that training ends early");
  parts_.effects->StatusChanged(job);
  CheckHeld(job, now);
  return absl::OkStatus();
}

// ---------------------------------------------------------------------------------------- workers

void JobLifecycle::TakeProgress(const Member& worker, const WorkerProgress& progress, Job* job,
                                absl::Time now) {
  RankSlot* const slot = job->ranks.SlotOf(worker.id);
  // A worker that has stopped may report once more that it runs nothing.
  if (slot == nullptr || slot->released()) return;
  const bool runs = progress.job_id() == job->id();
  if (!runs && slot->ConfirmsStop(worker.seen_version)) {
    attempts_.Release(job, slot);
    DropWhenReleased(job, now);
    return;
  }
  if (job->over() || job->state() != JOB_RUNNING) return;
  // It was taken for a vacant rank and does not know that yet.
  const uint32_t rank = *job->ranks.RankOf(worker.id);
  if (job->ranks.is_vacant(rank)) return;
  // The worker was told to serve the job, but its report does not name the job.
  if (!runs) return CheckServing(job, worker, slot, now);
  // The worker has not stopped yet what it did in an earlier attempt.
  if (progress.incarnation() != slot->incarnation()) return;
  slot->SeenRunning();
  TakeLosses(job, rank, progress.losses(), now);
}

void JobLifecycle::TakeLosses(Job* job, uint32_t rank,
                              const google::protobuf::RepeatedPtrField<StepLoss>& losses,
                              absl::Time now) {
  if (job->over() || job->state() != JOB_RUNNING) return;
  job->attempt.steps()->Add(rank, losses);
  parts_.effects->WriteScalars(*job, job->attempt.steps()->TakePoints(/*all=*/false), now);
  // Tick passes this on: waking the watchers at each report would be too often with many workers.
  job->NoteProgress();
}

void JobLifecycle::TakeLastProgress(uint64_t member_id, const WorkerProgress& progress,
                                    const Job& job) {
  Member* const member = parts_.members->ById(member_id);
  const RankSlot* const slot = job.ranks.SlotOf(member_id);
  // Nothing is older than a report of the same life that came before.
  if (member != nullptr && slot != nullptr && IsOfLife(job, *slot, progress) &&
      progress.rank() == *job.ranks.RankOf(member_id)) {
    member->progress = progress;
    member->progress.clear_losses();
  }
}

void JobLifecycle::CheckServing(Job* job, const Member& worker, RankSlot* slot, absl::Time now) {
  if (job->finishing()) return;
  const absl::Time idle_since = slot->SeenIdle(worker.seen_version, now);
  // Starting takes a moment, and reports can overtake each other: one that arrives now may have
  // been made before the worker started.
  const absl::Duration grace = slot->has_run() ? 2 * options_.heartbeat : options_.lease;
  if (parts_.pauses->Since(idle_since, now) < grace) return;
  End(job, JOB_FAILED,
      absl::StrCat(DescribeMember(worker), " of job ", job->id(), ": the worker ",
                   slot->has_run() ? "no longer runs" : "does not run",
                   " the job and gave no reason; see its log"),
      now);
}

// ----------------------------------------------------------------------------------------- losses

void JobLifecycle::MemberLost(Job* job, const Member& member, absl::Time now) {
  EndUnless(losses_.Lose(job, member, now), job, now);
  // The checkpoint that held the phase may have been given up. First, so that a rank is replaced in
  // the phase that follows.
  CheckHeld(job, now);
  AdvanceLosses(job, now);
  // The member may have been the last one to owe a report, or to serve an ended job.
  CheckFinishing(job, now);
  DropWhenReleased(job, now);
}

void JobLifecycle::TakeGroup(const Member& worker, const RankGroupReport& report, Job* job,
                             absl::Time now) {
  EndUnless(losses_.TakeGroup(worker, report, job, now), job, now);
}

void JobLifecycle::AdvanceLosses(Job* job, absl::Time now) {
  EndUnless(losses_.Advance(job, now), job, now);
}

void JobLifecycle::FillVacancies(absl::Time now) {
  for (Job* job : parts_.jobs->active()) {
    if (!job->complete()) AdvanceLosses(job, now);
  }
}

// ----------------------------------------------------------------------------------- next attempt

void JobLifecycle::RollBack(Job* job, absl::Time now) {
  EndUnless(losses_.RollBack(job, now), job, now);
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
    EndUnless(losses_.LoseDraining(job, now), job, now);
  }
}

std::vector<std::string> JobLifecycle::JobsOn(uint32_t pserver) const {
  std::vector<std::string> jobs;
  for (const Job* job : parts_.jobs->active()) {
    if (UsesPserver(*job, pserver)) jobs.push_back(job->id());
  }
  return jobs;
}

bool JobLifecycle::UsesPserver(const Job& job, uint32_t rank) const {
  const std::vector<uint32_t>& ranks = job.pservers.ranks();
  if (job.over()) return false;
  if (plans_.MayGoBackTo(job, rank)) return true;
  return job.attempt.hosted() && std::count(ranks.begin(), ranks.end(), rank) > 0;
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
    reasons.push_back(absl::StrCat("job ", job->id(), ": ", *why));
    jobs.push_back(job);
  }
  for (const Job* job : jobs) plans_.ToldWhyStays(job);
  return absl::StrJoin(reasons, "; ");
}

void JobLifecycle::AdvancePlan(Job* job, absl::Time now) {
  // The present attempt trains on until the next one may begin.
  if (!parts_.effects->records()->refused().empty()) return;
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
  deletions_.Advance(job, now);
  if (status.ok()) {
    parts_.effects->WriteRecoveryPoints(*job, now);
    // The checkpoints that it has replaced may have named models.
    DropModels(*job, now);
  }
  AdvanceLosses(job, now);
  Recover(job, now);
  AdvancePlan(job, now);
  CheckFinishing(job, now);
}

void JobLifecycle::Tick(Job* job, absl::Time now) {
  if (adoption_.late(*job, now)) {
    losses_.LoseMissing(job);
    RefuteAdoption(job, absl::DeadlineExceededError(job->course.message()), now);
  }
  checkpoints_.Tick(job, now);
  deletions_.Advance(job, now);
  CheckHeld(job, now);
  if (job->progress_untold()) parts_.effects->StatusChanged(job);
  CheckStarting(job, now);
  Recover(job, now);
  AdvanceLosses(job, now);
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
  parts_.effects->records()->RunEnded(job->id());
  job->course.End(outcome, SentenceWithLines(message), now);
  checkpoints_.End(job, now);
  deletions_.End(job);
  // First make the result: it needs the workers' last reports and the work, which go away below.
  job->course.SetResult(MakeJobResult(*job, *parts_.members));
  // Before the result is written: a job whose record has no outcome is run on.
  parts_.effects->records()->Changed(*job);
  if (parts_.queue->Remove(job)) parts_.jobs->Activate(job);
  // Before the workers are given back, or the job would reserve them again.
  next_attempt_.Forget(job);
  plans_.Forget(job);
  attempts_.GiveBack(job);
  parts_.requests->DropJob(job->id());
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  if (job->run()) {
    parts_.effects->WriteLastScalars(job, now);
    // The work of the phases may be large. Phases and result stay for callers that still follow the
    // job.
    job->run()->DropWork();
  }
  OutputAction ended = ActionOf(*job, OutputAction::kEnded, now);
  ended.config.set_worker_num(job->spec().worker_num());
  ended.result = job->course.result();
  ended.save_id = SaveIdOf(*job);
  parts_.effects->Write(std::move(ended));
  losses_.Forget(job);
  job->gathers.Clear();
  // The ranks of a job that is done learn of the end from their next phase, so they stay.
  for (RankSlot& slot : job->ranks.slots()) {
    if (outcome != JOB_DONE && slot.serving()) attempts_.Withdraw(&slot);
  }
  DropWhenReleased(job, now);
}

void JobLifecycle::TellEnd(RankSlot* slot) {
  if (slot->serving()) attempts_.Withdraw(slot);
}

void JobLifecycle::DropWhenReleased(Job* job, absl::Time now) {
  if (!job->over() || !job->attempt.hosted()) return;
  // After a lease, drop the tables even if a worker never confirms that it has stopped.
  if (!job->released() && now - job->course.ended_at() < options_.lease) return;
  // A rank that never asked for its next phase still holds an assignment.
  for (RankSlot& slot : job->ranks.slots()) TellEnd(&slot);
  job->attempt.DropTables();
  attempts_.TellPservers(*job);
}

void JobLifecycle::OutputAway(Job* job, const absl::Status& why) {
  if (!job->over() || !job->course.AwaitOutput(std::string(why.message()))) return;
  parts_.effects->StatusChanged(job);
}

void JobLifecycle::OutputEnded(Job* job, const absl::Status& status) {
  if (!job->over()) return;
  if (!status.ok()) job->course.WriteFailed(Sentence(status.message()));
  job->course.Written();
  // While an earlier scheduler has the folder, the record stays: the next one writes the result.
  if (!absl::IsAborted(status)) parts_.effects->records()->Dropped(job->id());
  parts_.effects->StatusChanged(job);
}

}  // namespace sluice
