#include "scheduler/job_lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "scheduler/job_status.h"
#include "scheduler/member_loss.h"

namespace sluice {
namespace {

OutputAction ActionOf(const Job& job, OutputAction::Kind kind, absl::Time now) {
  OutputAction action;
  action.kind = kind;
  action.job_id = job.job_id;
  action.time = now;
  return action;
}

// Adds what the epoch of the last point has cost so far, and how old the newest checkpoint is.
void AddRecoveryPoints(const Job& job, std::vector<Scalar>* points) {
  if (points->empty()) return;
  const uint64_t epoch = points->back().step;
  for (Scalar& point : job.recovery.Points(epoch)) points->push_back(std::move(point));
  if (!job.checkpoints) return;
  const CheckpointStatus checkpoint = job.checkpoints->status();
  if (checkpoint.made() > 0) points->push_back({"checkpoint/age_s", epoch, checkpoint.age_s()});
}

}  // namespace

// ------------------------------------------------------------------------------------ 1, 2: start

void JobLifecycle::Start(Job* job, absl::Time now) {
  parts_.queue->Remove(job);
  parts_.jobs->Activate(job);
  job->message.clear();
  job->queue_position = 0;
  for (const Member* pserver : parts_.members->Alive(ROLE_PSERVER))
    job->pserver_ranks.push_back(pserver->self.rank());
  const absl::Status begun = BeginAttempt(job, now);
  if (!begun.ok()) return End(job, JOB_FAILED, std::string(begun.message()), now);
  job->state = JOB_STARTING;
  parts_.effects->StatusChanged(job);
  OutputAction started = ActionOf(*job, OutputAction::kStarted, now);
  started.config = job->config;
  parts_.effects->Write(std::move(started));
}

absl::Status JobLifecycle::BeginAttempt(Job* job, absl::Time now) {
  const uint64_t generation = job->spec.route().generation();
  std::vector<uint64_t> pservers;
  std::vector<std::string> addresses;
  for (const uint32_t rank : job->pserver_ranks) {
    const Member& pserver = *parts_.members->At(ROLE_PSERVER, rank);
    pservers.push_back(pserver.id);
    addresses.push_back(pserver.self.address());
  }
  SLUICE_RETURN_IF_ERROR(options_.place(addresses, &job->spec));
  Route* const route = job->spec.mutable_route();
  route->set_generation(std::max(route->generation(), generation + 1));
  job->pservers = std::move(pservers);
  job->ranks.clear();
  job->rank_of.clear();
  job->spec.clear_incarnations();  // pservers know no earlier life in a new instance
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (job->ranks.size() == job->spec.worker_num()) break;
    if (!worker->free() && worker->job_id != job->job_id) continue;
    job->rank_of[worker->id] = static_cast<uint32_t>(job->ranks.size());
    job->ranks.emplace_back(worker->id, worker->self.rank(), next_incarnation_++);
    worker->job_id = job->job_id;
  }
  job->opening.Begin(now);
  job->hosted = true;
  TellPservers(*job);
  return absl::OkStatus();
}

void JobLifecycle::TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job,
                              absl::Time now) {
  if (job->over() || !job->hosted || HostedOf(*job, pserver) == nullptr) return;
  if (hosted.has_cut()) {
    checkpoints_.TakeHosted(pserver, hosted.cut(), job, now);
    CheckHeld(job, now);
  }
  if (hosted.error().empty()) {
    CheckStarting(job, now);
    return AdvanceReplacement(job, now);
  }
  // Ignore an error about an earlier route.
  if (hosted.generation() != job->spec.route().generation()) return;
  End(job, JOB_FAILED,
      absl::StrCat(DescribeMember(pserver), " of job ", job->job_id, ": ", hosted.error()), now);
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
      return End(job, JOB_FAILED, decision.message, now);
  }
}

void JobLifecycle::Run(Job* job, absl::Time now) {
  job->state = JOB_RUNNING;
  job->message.clear();
  job->before.reset();
  JobRun::Options run;
  run.config = &job->config;
  run.worker_num = job->spec.worker_num();
  run.save_id = SaveIdOf(*job);
  run.global_batch = job->spec.global_batch();
  run.resume = job->resume.get();
  job->run.emplace(run, now);
  if (job->steps) {
    job->steps->Restart();
  } else {
    job->steps.emplace(job->spec.worker_num());
  }
  checkpoints_.Begin(job, now);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  for (RankSlot& slot : job->ranks) {
    Member* member = parts_.members->ById(slot.member_id());
    if (member == nullptr) continue;
    parts_.effects->DesiredChanged(member);
    slot.Assign(member->version);
  }
  AdvanceReplacement(job, now);
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
  // Held, so that a checkpoint can be made of the epoch's end; async and Geo only.
  const bool was_held = job->run->held();
  job->run->Hold(job->checkpoints && !job->config.evaluate_only() &&
                 ModeOf(job->config.strategy()) != Mode::kSync);
  SLUICE_ASSIGN_OR_RETURN(bool advanced, job->run->TakeReport(rank, report, now));
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
  // An epoch's figures and a trace's last spans arrive only with the members' next reports.
  const bool last_spans = job->finishing() && !job->config.trace_file().empty();
  if (before == Phase::TRAIN || last_spans) AskForReports(job);
  if (job->finishing()) job->finishing_since = now;
  checkpoints_.PhaseChanged(job, now);
  std::vector<Scalar> points = job->run->TakeScalars();
  if (before == Phase::TRAIN) AddRecoveryPoints(*job, &points);
  WriteScalars(*job, std::move(points), now);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  CheckFinishing(job, now);
}

void JobLifecycle::AskForReports(Job* job) {
  std::vector<uint64_t> ids = job->pservers;
  for (const RankSlot& slot : job->ranks) ids.push_back(slot.member_id());
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
  RankSlot* const slot = job->SlotOf(worker.id);
  if (slot == nullptr || slot->released()) return;
  const bool runs = progress.job_id() == job->job_id;
  if (!runs && slot->ConfirmsStop(worker.seen_version)) {
    Release(job, slot);
    DropWhenReleased(job, now);
    return;
  }
  if (job->over() || job->state != JOB_RUNNING) return;
  // It was taken for a vacant rank and does not know that yet.
  if (job->vacant.count(static_cast<uint32_t>(slot - job->ranks.data())) > 0) return;
  if (!runs) return CheckServing(job, worker, slot, now);
  slot->SeenRunning();
  job->steps->Add(static_cast<uint32_t>(slot - job->ranks.data()), progress);
  WriteScalars(*job, job->steps->TakePoints(/*all=*/false), now);
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
  if (RankSlot* const slot = job->SlotOf(member.id)) Release(job, slot);
  const LossDecision decision = DecideMemberLoss(*job, member);
  if (!job->over() && !TakenForVacantRank(*job, member)) job->recovery.CountLoss(member, now);
  switch (decision.kind) {
    case LossDecision::kGoesOn:
      // A checkpoint of the last step may wait for the member's part.
      checkpoints_.MemberLost(job, member, now);
      break;
    case LossDecision::kReplaceRank:
      ReplaceRank(job, job->rank_of.at(member.id), decision.message, now);
      break;
    case LossDecision::kRollback:
      RollBack(job, now);
      break;
    case LossDecision::kFails:
      End(job, JOB_FAILED, decision.message, now);
      break;
  }
  // The member may have been the last one to owe a report, or to serve an ended job.
  CheckFinishing(job, now);
  DropWhenReleased(job, now);
}

// ------------------------------------------------------------------------------------ replacement

void JobLifecycle::ReplaceRank(Job* job, uint32_t rank, const std::string& why, absl::Time now) {
  replacement_.Lose(job, rank, next_incarnation_++, why, now);
  checkpoints_.RankLost(job, rank, now);
  CheckHeld(job, now);
  AdvanceReplacement(job, now);
}

void JobLifecycle::AdvanceReplacement(Job* job, absl::Time now) {
  std::vector<uint32_t> settled;
  const absl::Status status = replacement_.Advance(job, now, &settled);
  // Until now the lost life, which may only have been slow, could go on to other steps and cuts.
  for (const uint32_t rank : settled) checkpoints_.RankLost(job, rank, now);
  if (!status.ok()) End(job, JOB_FAILED, std::string(status.message()), now);
}

void JobLifecycle::FillVacancies(absl::Time now) {
  for (Job* job : parts_.jobs->active()) {
    if (!job->vacant.empty()) AdvanceReplacement(job, now);
  }
}

// ------------------------------------------------------------------------------- a, b: next
// attempt

void JobLifecycle::RollBack(Job* job, absl::Time now) {
  // Another loss while the job waits changes only what it waits for.
  if (!job->awaits_members()) {
    if (job->run) {
      const JobStatus status = MakeJobStatus(*job, *parts_.members);
      job->recovery.NoteReached(status.global_step(), status.examples());
    }
    job->state = JOB_RECOVERING;
    checkpoints_.Interrupt(job, now);
    if (job->run) {
      std::vector<Scalar> points = job->run->TakeScalars();
      for (Scalar& point : job->steps->TakePoints(/*all=*/true)) points.push_back(std::move(point));
      WriteScalars(*job, std::move(points), now);
      job->before = job->run->result();
      job->run.reset();
    }
    parts_.requests->DropJob(job->job_id);
    for (RankSlot& slot : job->ranks) {
      if (slot.serving()) Withdraw(&slot);
    }
    job->vacant.clear();
    job->hosted = false;
    TellPservers(*job);
    const bool output_ready = job->opening.output_ready();
    job->opening = JobOpening();
    if (output_ready) job->opening.OutputReady();
    parts_.effects->PhaseChanged(*job);
    recovering_.push_back(job);
  }
  parts_.queue->MembersChanged();
  Recover(job, now);
}

void JobLifecycle::CountRollback(Job* job) {
  uint64_t steps = 0, examples = 0;
  if (job->resume != nullptr) {
    const CheckpointState& state = job->resume->state();
    // In async and Geo the steps of a job are those of all its workers.
    const bool sync = ModeOf(job->config.strategy()) == Mode::kSync;
    steps = sync ? state.global_step() : state.result().global_step();
    examples = state.result().examples();
    for (const WorkerState& worker : state.workers()) {
      examples += worker.train().examples();
      if (!sync) steps += worker.train().steps();
    }
  }
  // Each step of a worker is an update in async, and every k_steps of them in Geo.
  const StrategyConfig& strategy = job->config.strategy();
  uint64_t steps_of_update = 0;
  if (ModeOf(strategy) == Mode::kAsync) steps_of_update = 1;
  if (ModeOf(strategy) == Mode::kGeo)
    steps_of_update = std::max(1, strategy.a_sync_configs().k_steps());
  job->recovery.CountRollback(steps, examples, steps_of_update);
}

void JobLifecycle::RecoverJobs(absl::Time now) {
  for (Job* job : std::vector<Job*>(recovering_)) Recover(job, now);
}

void JobLifecycle::ReserveWorkers(Job* job) {
  const std::vector<Member*> workers = parts_.members->Alive(ROLE_WORKER);
  auto has = static_cast<uint32_t>(
      std::count_if(workers.begin(), workers.end(),
                    [job](const Member* worker) { return worker->job_id == job->job_id; }));
  for (Member* worker : workers) {
    if (has >= job->spec.worker_num()) return;
    if (!worker->free()) continue;
    worker->job_id = job->job_id;
    ++has;
  }
}

void JobLifecycle::GiveBackWorkers(Job* job) {
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (worker->job_id != job->job_id) continue;
    const RankSlot* const slot = job->SlotOf(worker->id);
    if (slot == nullptr || slot->released()) worker->job_id.clear();
  }
  parts_.queue->MembersChanged();
}

void JobLifecycle::Recover(Job* job, absl::Time now) {
  if (!job->awaits_members()) return;
  ReserveWorkers(job);
  const absl::Duration wait = job->config.recovery().has_wait_s()
                                  ? absl::Seconds(job->config.recovery().wait_s())
                                  : options_.wait;
  const JobRecovery::Decision decision =
      job->recovery.Decide(*job, *parts_.members, *parts_.pauses, wait, now);
  if (decision.kind == JobRecovery::Decision::kFail)
    return End(job, JOB_FAILED, decision.message, now);
  if (decision.kind == JobRecovery::Decision::kWait) {
    if (job->message != decision.message) parts_.effects->StatusChanged(job);
    job->message = decision.message;
    return;
  }
  if (std::unique_ptr<const ResumePoint> newest = checkpoints_.NewestPoint(*job))
    job->resume = std::move(newest);
  if (job->resume != nullptr) {
    job->spec.mutable_restore()->set_kind(Restore::RESUME);
    job->spec.mutable_restore()->set_directory(job->resume->dir);
    job->spec.mutable_restore()->set_step(job->resume->state().global_step());
  }
  CountRollback(job);
  job->recovery.Describe(job->resume == nullptr
                             ? "the job began again at its beginning"
                             : absl::StrCat("the job went back to ", job->resume->dir));
  job->message = job->recovery.counts().last();
  job->spec.set_instance(NewInstance());
  recovering_.erase(std::find(recovering_.begin(), recovering_.end(), job));
  parts_.effects->StatusChanged(job);
  const absl::Status begun = BeginAttempt(job, now);
  if (!begun.ok()) End(job, JOB_FAILED, std::string(begun.message()), now);
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
  Recover(job, now);
  CheckFinishing(job, now);
}

void JobLifecycle::Tick(Job* job, absl::Time now) {
  checkpoints_.Tick(job, now);
  CheckHeld(job, now);
  if (job->progress_untold) parts_.effects->StatusChanged(job);
  CheckStarting(job, now);
  Recover(job, now);
  AdvanceReplacement(job, now);
  CheckFinishing(job, now);
  DropWhenReleased(job, now);
}

// ---------------------------------------------------------------------------------- 5, 6, 7: end

void JobLifecycle::End(Job* job, JobState outcome, const std::string& message, absl::Time now) {
  if (job->over()) return;
  job->outcome = outcome;
  job->message = message;
  job->queue_position = 0;
  job->ended_at = now;
  checkpoints_.End(job, now);
  // First make the result: it needs the workers' last reports and the work, which go away below.
  job->result = MakeJobResult(*job, *parts_.members);
  if (parts_.queue->Remove(job)) parts_.jobs->Activate(job);
  recovering_.erase(std::remove(recovering_.begin(), recovering_.end(), job), recovering_.end());
  GiveBackWorkers(job);
  parts_.requests->DropJob(job->job_id);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  if (job->run) {
    std::vector<Scalar> points = job->run->TakeScalars();
    for (Scalar& point : job->steps->TakePoints(/*all=*/true)) points.push_back(std::move(point));
    WriteScalars(*job, std::move(points), now);
    job->run->DropWork();
  }
  OutputAction ended = ActionOf(*job, OutputAction::kEnded, now);
  ended.config = job->config;
  ended.result = job->result;
  ended.save_id = SaveIdOf(*job);
  parts_.effects->Write(std::move(ended));
  // Workers that were taken for vacant ranks know nothing of the job.
  for (const auto& [rank, vacancy] : std::exchange(job->vacant, {}))
    Release(job, &job->ranks[rank]);
  // The ranks of a job that is done learn of the end from their next phase, so they stay.
  for (RankSlot& slot : job->ranks) {
    if (outcome != JOB_DONE && slot.serving()) Withdraw(&slot);
  }
  DropWhenReleased(job, now);
}

void JobLifecycle::TellEnd(RankSlot* slot) {
  if (slot->serving()) Withdraw(slot);
}

void JobLifecycle::Withdraw(RankSlot* slot) {
  Member* member = parts_.members->ById(slot->member_id());
  if (member == nullptr) return slot->Withdraw(0);
  parts_.effects->DesiredChanged(member);
  slot->Withdraw(member->version);
}

void JobLifecycle::Release(Job* job, RankSlot* slot) {
  slot->Release();
  Member* member = parts_.members->ById(slot->member_id());
  // The member may be gone, or a newer process may have its role and rank.
  if (member == nullptr || member->job_id != job->job_id) return;
  // A survivor stays reserved for the next attempt.
  if (job->awaits_members() && member->alive) return;
  member->job_id.clear();
  parts_.queue->MembersChanged();
}

void JobLifecycle::DropWhenReleased(Job* job, absl::Time now) {
  if (!job->over() || !job->hosted) return;
  // After a lease, drop the tables even if a worker never confirms that it has stopped.
  if (!job->released() && now - job->ended_at < options_.lease) return;
  for (RankSlot& slot : job->ranks) TellEnd(&slot);
  job->hosted = false;
  TellPservers(*job);
}

void JobLifecycle::OutputEnded(Job* job, const absl::Status& status) {
  if (!job->over()) return;
  if (!status.ok()) {
    // When the output folder was refused at the start, the message already says so.
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
  parts_.effects->StatusChanged(job);
}

void JobLifecycle::TellPservers(const Job& job) {
  for (const uint64_t id : job.pservers) {
    if (Member* member = parts_.members->ById(id)) parts_.effects->DesiredChanged(member);
  }
}

void JobLifecycle::WriteScalars(const Job& job, std::vector<Scalar> points, absl::Time now) {
  if (points.empty()) return;
  OutputAction action = ActionOf(job, OutputAction::kScalars, now);
  action.scalars = std::move(points);
  parts_.effects->Write(std::move(action));
}

}  // namespace sluice
