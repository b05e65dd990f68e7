#include "scheduler/job_lifecycle.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "scheduler/job_status.h"
#include "scheduler/member_loss.h"

namespace sluice {
namespace {

// Members that live come back within this time, however short their lease is.
constexpr absl::Duration kMembersComeBack = absl::Seconds(5);

OutputAction ActionOf(const Job& job, OutputAction::Kind kind, absl::Time now) {
  OutputAction action;
  action.kind = kind;
  action.job_id = job.job_id;
  action.time = now;
  return action;
}

const HeldJob* HeldOf(const Job& job, const Member& member) {
  for (const HeldJob& held : member.self.holds()) {
    if (held.job_id() == job.job_id && held.instance() == job.spec.instance()) return &held;
  }
  return nullptr;
}

// Makes the run that the records describe.
absl::Status Replay(const StoredRun& stored, bool same_clock, absl::Time now,
                    const JobRun::Options& options, std::optional<JobRun>* run) {
  run->emplace(options, now);
  if (stored.record.phase() == 0) return absl::DataLossError("there is no record of the run");
  for (const auto& [rank, report] : stored.index) {
    if (rank >= options.worker_num) return absl::DataLossError("a rank is out of range");
    SLUICE_RETURN_IF_ERROR((*run)->TakeReport(rank, report, now).status());
  }
  if (stored.record.phase() == 1) return (*run)->failure();
  SLUICE_RETURN_IF_ERROR(
      (*run)->Restore(stored.record.phase(), stored.record.state(), same_clock, now));
  // The phase does not end here: what follows from its end has to happen, too.
  (*run)->Hold(true);
  for (const TaskRecord& task : stored.tasks) {
    if ((task.has_asked() ? task.asked().rank() : task.rank()) >= options.worker_num)
      return absl::DataLossError("a rank is out of range");
    if (task.has_asked()) {
      SLUICE_RETURN_IF_ERROR((*run)->NextTask(task.asked()).status());
    } else {
      SLUICE_RETURN_IF_ERROR((*run)->TakeReport(task.rank(), task.ended(), now).status());
    }
  }
  (*run)->Hold(false);
  return (*run)->failure();
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

// Which of the job's pservers the member is.
std::optional<uint32_t> IndexOf(const Job& job, const Member& pserver) {
  const auto at = std::find(job.pservers.begin(), job.pservers.end(), pserver.id);
  if (at == job.pservers.end()) return std::nullopt;
  return static_cast<uint32_t>(at - job.pservers.begin());
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
  job->begun = true;
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
  OutputAction started = ActionOf(*job, OutputAction::kStarted, now);
  started.config = job->config;
  parts_.effects->Write(std::move(started));
}

void JobLifecycle::Restore(Job* job, const Recovery& counts, absl::Time now) {
  parts_.jobs->Activate(job);
  job->state = JOB_RECOVERING;
  job->recovery.Restore(counts, now);
  if (job->resume != nullptr) job->before = job->resume->state().result();
  recovering_.push_back(job);
  parts_.queue->MembersChanged();
  parts_.effects->records()->Changed(*job);
  parts_.effects->StatusChanged(job);
  OutputAction started = ActionOf(*job, OutputAction::kStarted, now);
  started.config = job->config;
  started.again = true;
  parts_.effects->Write(std::move(started));
}

absl::Status JobLifecycle::Adopt(Job* job, const Recovery& counts, const StoredRun& run,
                                 std::unique_ptr<const ResumePoint> began_at,
                                 absl::StatusOr<std::unique_ptr<const ResumePoint>>* newest,
                                 absl::Time now) {
  const RunRecord& record = run.record;
  if (record.ranks_size() != static_cast<int>(record.spec().worker_num()) ||
      job->pserver_ranks.size() != static_cast<size_t>(record.spec().route().pservers_size())) {
    return absl::DataLossError("the record of the run is not complete");
  }
  JobRun::Options options;
  options.config = &job->config;
  options.worker_num = record.spec().worker_num();
  options.save_id = absl::StrCat(absl::Hex(record.spec().instance(), absl::kZeroPad16));
  options.global_batch = record.spec().global_batch();
  options.resume = began_at.get();
  const absl::Status replayed =
      Replay(run, record.clock() == parts_.effects->records()->clock(), now, options, &job->run);
  if (!replayed.ok()) {
    job->run.reset();
    return replayed;
  }
  parts_.jobs->Activate(job);
  job->state = JOB_RUNNING;
  job->adopted = job->replayed = true;
  job->spec = record.spec();
  job->resume = std::move(began_at);
  job->adoption.emplace(Adoption{now, std::move(*newest), 0});
  job->recovery.Restore(counts, now);
  for (const RunRecord::Rank& rank : record.ranks())
    job->ranks.emplace_back(0, rank.worker(), rank.incarnation(), rank.rejoins());
  job->ended.assign(record.ended().begin(), record.ended().end());
  job->pservers.assign(job->pserver_ranks.size(), 0);
  job->hosted = true;
  job->steps.emplace(job->spec.worker_num());
  if (job->finishing()) job->finishing_since = now;
  parts_.effects->records()->RunAdopted(job->job_id, run);
  parts_.effects->records()->Changed(*job);
  TellWhoIsMissing(job);
  OutputAction started = ActionOf(*job, OutputAction::kStarted, now);
  started.config = job->config;
  started.again = true;
  parts_.effects->Write(std::move(started));
  return absl::OkStatus();
}

bool JobLifecycle::TakeBack(Member* member, absl::Time now) {
  bool serves = false;
  for (Job* job : std::vector<Job*>(parts_.jobs->active())) {
    if (!job->adopted || job->over()) continue;
    const Claim claim = member->self.role() == ROLE_WORKER ? TakeBackRank(job, member)
                                                           : TakeBackTables(job, *member);
    if (claim == Claim::kRefused) {
      const absl::Status lost(absl::StatusCode::kAborted,
                              absl::StrCat(DescribeMember(*member), " no longer serves the job"));
      RefuteAdoption(job, lost, now);
    }
    if (claim != Claim::kTaken) continue;
    serves = true;
    if (!job->adoption) continue;  // the call was repeated
    const HeldJob& held = *HeldOf(*job, *member);
    job->adoption->checkpoint = std::max<uint64_t>(job->adoption->checkpoint, held.checkpoint());
    TellWhoIsMissing(job);
    if (job->message.empty()) FinishAdoption(job, now);
  }
  return serves;
}

JobLifecycle::Claim JobLifecycle::TakeBackRank(Job* job, Member* worker) {
  const auto of_worker = [&](const RankSlot& slot) {
    return slot.member_id() == worker->id ||
           (job->adoption && slot.member_id() == 0 && slot.worker() == worker->self.rank());
  };
  const auto slot = std::find_if(job->ranks.begin(), job->ranks.end(), of_worker);
  if (slot == job->ranks.end()) return Claim::kNone;
  const auto rank = static_cast<uint32_t>(slot - job->ranks.begin());
  const HeldJob* const held = HeldOf(*job, *worker);
  if (held == nullptr || held->rank() != rank || held->incarnation() != slot->incarnation())
    return slot->member_id() == 0 ? Claim::kRefused : Claim::kNone;
  if (slot->member_id() == worker->id) return Claim::kTaken;
  *slot = RankSlot(worker->id, slot->worker(), slot->incarnation(), slot->rejoins());
  slot->Assign(worker->version);
  job->rank_of[worker->id] = rank;
  worker->job_id = job->job_id;
  return Claim::kTaken;
}

JobLifecycle::Claim JobLifecycle::TakeBackTables(Job* job, const Member& pserver) {
  const auto at =
      std::find(job->pserver_ranks.begin(), job->pserver_ranks.end(), pserver.self.rank());
  if (at == job->pserver_ranks.end()) return Claim::kNone;
  const auto i = static_cast<size_t>(at - job->pserver_ranks.begin());
  uint64_t& member_id = job->pservers[i];
  if (member_id != 0 && member_id != pserver.id) return Claim::kNone;
  const HeldJob* const held = HeldOf(*job, pserver);
  const Route& route = job->spec.route();
  if (held == nullptr || held->generation() != route.generation() ||
      route.pservers(static_cast<int>(i)) != pserver.self.address()) {
    return member_id == 0 ? Claim::kRefused : Claim::kNone;
  }
  member_id = pserver.id;
  return Claim::kTaken;
}

void JobLifecycle::TellWhoIsMissing(Job* job) {
  std::vector<std::string> missing;
  for (size_t i = 0; i < job->pservers.size(); ++i) {
    if (job->pservers[i] == 0) missing.push_back(absl::StrCat("pserver ", job->pserver_ranks[i]));
  }
  for (const RankSlot& slot : job->ranks) {
    if (slot.member_id() == 0) missing.push_back(absl::StrCat("worker ", slot.worker()));
  }
  job->message = missing.empty() ? ""
                                 : absl::StrCat("the scheduler was started again; waits for ",
                                                absl::StrJoin(missing, ", "), " to register again");
  parts_.effects->StatusChanged(job);
}

void JobLifecycle::FinishAdoption(Job* job, absl::Time now) {
  checkpoints_.Adopt(job, now);
  job->adoption.reset();
  job->recovery.Describe("the job went on");
  parts_.effects->records()->Changed(*job);
  TellPservers(*job);
  for (const RankSlot& slot : job->ranks)
    parts_.effects->DesiredChanged(parts_.members->ById(slot.member_id()));
  parts_.effects->StatusChanged(job);
}

void JobLifecycle::DropAdoption(Job* job) {
  if (!job->adoption) return;
  for (RankSlot& slot : job->ranks) {
    if (slot.member_id() == 0) slot.Release();
  }
  job->adoption.reset();
}

bool JobLifecycle::RefuteAdoption(Job* job, const absl::Status& error, absl::Time now) {
  if (!job->replayed || job->over() || job->state != JOB_RUNNING) return false;
  job->recovery.NoteCause(std::string(error.message()), now);
  RollBack(job, now);
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
  } else if (RefuteAdoption(job, reply.status(), now)) {
    return absl::AbortedError(reply.status().message());
  }
  return reply;
}

void JobLifecycle::WriteResultAgain(Job* job, absl::Time now) {
  parts_.jobs->Activate(job);
  job->ended_at = now;
  parts_.effects->StatusChanged(job);
  OutputAction ended = ActionOf(*job, OutputAction::kEnded, now);
  ended.config = job->config;
  ended.result = job->result;
  ended.save_id = SaveIdOf(*job);
  ended.again = true;
  parts_.effects->Write(std::move(ended));
}

void JobLifecycle::SetNewInstance(Job* job) {
  job->spec.set_instance(next_instance_++);
  job->instances.push_back(job->spec.instance());
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
  for (Member* worker : WorkersFor(*job)) {
    job->rank_of[worker->id] = static_cast<uint32_t>(job->ranks.size());
    job->ranks.emplace_back(worker->id, worker->self.rank(), next_incarnation_++);
    worker->job_id = job->job_id;
  }
  GiveBackWorkers(job);  // those that are reserved, but got no rank
  job->opening.Begin(now);
  job->hosted = true;
  TellPservers(*job);
  return absl::OkStatus();
}

std::vector<Member*> JobLifecycle::WorkersFor(const Job& job) const {
  // A worker that is reserved for the job must get a rank, or nobody would ever give it back.
  std::vector<Member*> own, free, chosen;
  for (Member* worker : parts_.members->Alive(ROLE_WORKER)) {
    if (worker->job_id == job.job_id) own.push_back(worker);
    if (worker->free()) free.push_back(worker);
  }
  for (const auto* from : {&own, &free}) {
    for (Member* worker : *from) {
      if (chosen.size() < job.spec.worker_num()) chosen.push_back(worker);
    }
  }
  // Ranks follow the order of the cluster.
  std::sort(chosen.begin(), chosen.end(),
            [](const Member* a, const Member* b) { return a->self.rank() < b->self.rank(); });
  return chosen;
}

void JobLifecycle::TakeHosted(const Member& pserver, const HostedJob& hosted, Job* job,
                              absl::Time now) {
  if (job->over() || !job->hosted || HostedOf(*job, pserver) == nullptr) return;
  if (hosted.has_cut()) {
    checkpoints_.TakeHosted(pserver, hosted.cut(), job, now);
    CheckHeld(job, now);
  }
  if (const auto index = IndexOf(*job, pserver)) takeover_.TakeHosted(job, *index, hosted);
  if (hosted.error().empty()) {
    CheckStarting(job, now);
    AdvanceTakeover(job, now);
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
  // A vacant place has no member that could be adopted.
  if (job->complete()) parts_.effects->records()->PhaseBegan(*job);
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
  const absl::StatusOr<bool> news = job->run->phases().IsNews(rank, report.number());
  // Held, so that a checkpoint can be made of the epoch's end; async and Geo only.
  const bool was_held = job->run->held();
  job->run->Hold(job->checkpoints && !job->config.evaluate_only() &&
                 ModeOf(job->config.strategy()) != Mode::kSync);
  const absl::StatusOr<bool> taken = job->run->TakeReport(rank, report, now);
  if (!taken.ok() && RefuteAdoption(job, taken.status(), now))
    return absl::AbortedError(taken.status().message());
  SLUICE_RETURN_IF_ERROR(taken.status());
  bool advanced = *taken;
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
  // All that this phase knows was decided here or has been agreed on by all ranks.
  if (!job->adoption) job->replayed = false;
  if (job->complete()) {
    parts_.effects->records()->PhaseBegan(*job);
  } else {
    parts_.effects->records()->PhaseLost(job->job_id);
  }
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
  // Restored shards must hear from every rank: only then is it known how many updates are lost.
  if (!job->vacant_pservers.empty()) return;
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
  // The worker has not stopped yet what it did in an earlier attempt.
  if (progress.incarnation() != slot->incarnation()) return;
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
  LossDecision decision = DecideMemberLoss(*job, member);
  // The other members may not know of it.
  if (job->adoption && decision.kind == LossDecision::kReplaceRank)
    decision.kind = LossDecision::kRollback;
  if (!job->over() && !TakenForVacantRank(*job, member)) job->recovery.CountLoss(member, now);
  switch (decision.kind) {
    case LossDecision::kGoesOn:
      // A checkpoint of the last step may wait for the member's part.
      checkpoints_.MemberLost(job, member, now);
      if (!job->over()) takeover_.GiveUp(job);
      break;
    case LossDecision::kReplaceRank:
      ReplaceRank(job, job->rank_of.at(member.id), decision.message, now);
      break;
    case LossDecision::kTakeOver:
      TakeOverShards(job, member, decision.message, now);
      break;
    case LossDecision::kRollback:
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

// ------------------------------------------------------------------------------------ replacement

void JobLifecycle::ReplaceRank(Job* job, uint32_t rank, const std::string& why, absl::Time now) {
  parts_.effects->records()->PhaseLost(job->job_id);
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
    if (!job->vacant_pservers.empty()) AdvanceTakeover(job, now);
    if (!job->vacant.empty()) AdvanceReplacement(job, now);
  }
}

void JobLifecycle::TakeOverShards(Job* job, const Member& lost, const std::string& why,
                                  absl::Time now) {
  const uint32_t index = *IndexOf(*job, lost);
  if (!job->newest_unusable.ok() && CheckpointLifecycle::NewestOfInstance(*job).empty())
    return End(job, JOB_FAILED, std::string(job->newest_unusable.message()), now);
  parts_.effects->records()->PhaseLost(job->job_id);
  takeover_.Lose(job, index, why, now);
  checkpoints_.PserverVacant(job, index, now);
  CheckHeld(job, now);
  AdvanceTakeover(job, now);
}

void JobLifecycle::AdvanceTakeover(Job* job, absl::Time now) {
  const absl::Status status = takeover_.Advance(job, now);
  if (!status.ok()) End(job, JOB_FAILED, std::string(status.message()), now);
}

// -------------------------------------------------------------------------- a, b: next attempt

void JobLifecycle::RollBack(Job* job, absl::Time now) {
  absl::Status restartable;
  // Another loss while the job waits changes only what it waits for.
  if (!job->awaits_members()) {
    parts_.effects->records()->RunEnded(job->job_id);
    if (job->run) {
      const JobStatus status = MakeJobStatus(*job, *parts_.members);
      job->recovery.NoteReached(status.global_step(), status.examples());
    }
    job->state = JOB_RECOVERING;
    job->adopted = job->replayed = false;
    checkpoints_.Interrupt(job, now);
    if (job->run) {
      std::vector<Scalar> points = job->run->TakeScalars();
      for (Scalar& point : job->steps->TakePoints(/*all=*/true)) points.push_back(std::move(point));
      WriteScalars(*job, std::move(points), now);
      job->before = job->run->result();
      job->run.reset();
    }
    if (job->adoption) {
      restartable = job->adoption->newest.status();
      // The run, which used the point where it began, is gone.
      if (restartable.ok()) job->resume = *std::move(job->adoption->newest);
      DropAdoption(job);
    }
    parts_.requests->DropJob(job->job_id);
    for (RankSlot& slot : job->ranks) {
      if (slot.serving()) Withdraw(&slot);
    }
    job->vacant.clear();
    job->vacant_pservers.clear();
    job->ended.clear();
    job->spec.clear_takeover();
    job->spec.mutable_route()->clear_vacant();
    job->hosted = false;
    TellPservers(*job);
    const bool output_ready = job->opening.output_ready();
    job->opening = JobOpening();
    if (output_ready) job->opening.OutputReady();
    parts_.effects->PhaseChanged(*job);
    recovering_.push_back(job);
  }
  parts_.queue->MembersChanged();
  if (!restartable.ok()) return End(job, JOB_FAILED, std::string(restartable.message()), now);
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
  job->recovery.CountRollback(steps, examples);
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
  if (std::unique_ptr<const ResumePoint> newest = checkpoints_.NewestPoint(*job)) {
    job->resume = std::move(newest);
    job->newest_unusable = absl::OkStatus();
  }
  if (!job->newest_unusable.ok())
    return End(job, JOB_FAILED, std::string(job->newest_unusable.message()), now);
  if (job->resume != nullptr) {
    job->spec.mutable_restore()->set_kind(Restore::RESUME);
    job->spec.mutable_restore()->set_directory(job->resume->dir);
    job->spec.mutable_restore()->set_step(job->resume->state().global_step());
    // The first attempt may have started from initial_checkpoint.
    job->spec.mutable_restore()->set_kind(Restore::RESUME);
  }
  CountRollback(job);
  job->recovery.Describe(job->resume == nullptr
                             ? "the job began again at its beginning"
                             : absl::StrCat("the job went back to ", job->resume->dir));
  job->message = job->recovery.counts().last();
  SetNewInstance(job);
  // Before the attempt makes checkpoints: these are the job's own only once the record says so.
  parts_.effects->records()->Changed(*job);
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
  AdvanceTakeover(job, now);
  CheckFinishing(job, now);
}

void JobLifecycle::Tick(Job* job, absl::Time now) {
  if (job->adoption && parts_.pauses->Since(job->adoption->since, now) >=
                           std::max(options_.lease, kMembersComeBack)) {
    RefuteAdoption(job, absl::DeadlineExceededError(job->message), now);
  }
  checkpoints_.Tick(job, now);
  CheckHeld(job, now);
  if (job->progress_untold) parts_.effects->StatusChanged(job);
  CheckStarting(job, now);
  Recover(job, now);
  AdvanceTakeover(job, now);
  AdvanceReplacement(job, now);
  CheckFinishing(job, now);
  DropWhenReleased(job, now);
}

// ---------------------------------------------------------------------------------- 5, 6, 7: end

void JobLifecycle::End(Job* job, JobState outcome, const std::string& message, absl::Time now) {
  if (job->over()) return;
  DropAdoption(job);
  parts_.effects->records()->RunEnded(job->job_id);
  job->outcome = outcome;
  job->message = message;
  job->queue_position = 0;
  job->ended_at = now;
  checkpoints_.End(job, now);
  // First make the result: it needs the workers' last reports and the work, which go away below.
  job->result = MakeJobResult(*job, *parts_.members);
  // Before the result is written: a job whose record has no outcome is run on.
  parts_.effects->records()->Changed(*job);
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
  job->vacant_pservers.clear();
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
  // While an earlier scheduler has the folder, the record stays: the next one writes the result.
  if (!absl::IsAborted(status)) parts_.effects->records()->Dropped(job->job_id);
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
