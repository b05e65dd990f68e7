#include "scheduler/job_lifecycle.h"

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

}  // namespace

// ------------------------------------------------------------------------------------ 1, 2: start

void JobLifecycle::Start(Job* job, absl::Time now) {
  parts_.queue->Remove(job);
  parts_.jobs->Activate(job);
  job->message.clear();
  job->queue_position = 0;
  parts_.effects->StatusChanged(job);
  std::vector<std::string> addresses;
  for (const Member* pserver : parts_.members->Alive(ROLE_PSERVER)) {
    job->pservers.push_back(pserver->id);
    addresses.push_back(pserver->self.address());
  }
  const absl::Status placed = options_.place(addresses, &job->spec);
  if (!placed.ok()) {
    job->pservers.clear();
    return End(job, JOB_FAILED, std::string(placed.message()), now);
  }
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (job->ranks.size() == job->spec.worker_num()) break;
    if (!worker->free()) continue;
    job->rank_of[worker->id] = static_cast<uint32_t>(job->ranks.size());
    job->ranks.emplace_back(worker->id, worker->self.rank(), next_incarnation_++);
    worker->job_id = job->job_id;
  }
  job->state = JOB_STARTING;
  job->opening.Begin(now);
  job->hosted = true;
  TellPservers(*job);
  OutputAction started = ActionOf(*job, OutputAction::kStarted, now);
  started.config = job->config;
  parts_.effects->Write(std::move(started));
}

void JobLifecycle::TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job,
                              absl::Time now) {
  if (job->over() || HostedOf(*job, pserver) == nullptr) return;
  if (hosted.has_cut()) checkpoints_.TakeHosted(pserver, hosted.cut(), job, now);
  if (hosted.error().empty()) return CheckStarting(job, now);
  // Ignore an error about an earlier route.
  if (hosted.generation() != job->spec.route().generation()) return;
  End(job, JOB_FAILED,
      absl::StrCat(DescribeMember(pserver), " of job ", job->job_id, ": ", hosted.error()), now);
}

void JobLifecycle::CheckStarting(Job* job, absl::Time now) {
  if (job->state != JOB_STARTING || job->over()) return;
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
  JobRun::Options run;
  run.config = &job->config;
  run.worker_num = job->spec.worker_num();
  run.save_id = SaveIdOf(*job);
  run.global_batch = job->spec.global_batch();
  run.resume = job->resume.get();
  job->run.emplace(run, now);
  job->steps.emplace(job->spec.worker_num());
  checkpoints_.Begin(job, now);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  for (RankSlot& slot : job->ranks) {
    Member* member = parts_.members->ById(slot.member_id());
    if (member == nullptr) continue;
    parts_.effects->DesiredChanged(member);
    slot.Assign(member->version);
  }
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
  SLUICE_ASSIGN_OR_RETURN(const bool advanced, job->run->TakeReport(rank, report, now));
  if (!job->run->failure().ok()) {
    End(job, JOB_FAILED, std::string(job->run->failure().message()), now);
    return absl::OkStatus();
  }
  if (!advanced) return absl::OkStatus();
  // An epoch's figures and a trace's last spans arrive only with the members' next reports.
  const bool last_spans = job->finishing() && !job->config.trace_file().empty();
  if (before == Phase::TRAIN || last_spans) AskForReports(job);
  if (job->finishing()) job->finishing_since = now;
  checkpoints_.PhaseChanged(job, now);
  WriteScalars(*job, job->run->TakeScalars(), now);
  parts_.effects->StatusChanged(job);
  parts_.effects->PhaseChanged(*job);
  CheckFinishing(job, now);
  return absl::OkStatus();
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
  if (job->over() || !job->run) return;
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
  if (decision.kind == LossDecision::kFails) End(job, JOB_FAILED, decision.message, now);
  // The member may have been the last one to owe a report, or to serve an ended job.
  CheckFinishing(job, now);
  DropWhenReleased(job, now);
}

void JobLifecycle::TakeCut(const Member& worker, const WorkerCut& cut, Job* job, absl::Time now) {
  checkpoints_.TakeWorker(worker, cut, job, now);
}

absl::StatusOr<CheckpointJobReply> JobLifecycle::Checkpoint(Job* job, uint64_t number,
                                                            absl::Time now) {
  return checkpoints_.Demand(job, number, now);
}

void JobLifecycle::CheckpointWritten(Job* job, uint64_t number, const absl::Status& status,
                                     const std::string& warning, absl::Time now) {
  checkpoints_.Written(job, number, status, warning, now);
  CheckFinishing(job, now);
}

void JobLifecycle::Tick(Job* job, absl::Time now) {
  checkpoints_.Tick(job, now);
  if (job->progress_untold) parts_.effects->StatusChanged(job);
  CheckStarting(job, now);
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
