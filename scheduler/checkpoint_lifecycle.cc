#include "scheduler/checkpoint_lifecycle.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/config/job_config.h"
#include "common/saved_model/checkpoint.h"

namespace sluice {
namespace {

// Global steps that the workers have reported.
uint64_t ReportedStep(const Job& job, const Membership& members) {
  uint64_t step = 0;
  for (const RankSlot& slot : job.ranks) {
    const Member* member = members.ById(slot.member_id());
    if (member != nullptr && member->progress.job_id() == job.job_id)
      step = std::max(step, member->progress.step());
  }
  return step;
}

CheckpointJobReply ReplyOf(const JobCheckpoints::Outcome& outcome) {
  CheckpointJobReply reply;
  reply.set_number(outcome.number);
  reply.set_done(true);
  reply.set_error(outcome.error);
  reply.set_dir(outcome.dir);
  reply.set_step(outcome.step);
  return reply;
}

OutputAction ActionOf(const Job& job, OutputAction::Kind kind, uint64_t number, absl::Time time) {
  OutputAction action;
  action.kind = kind;
  action.job_id = job.job_id;
  action.time = time;
  action.config = job.config;
  action.save_id = CheckpointSaveId(job.spec.instance(), number);
  action.number = number;
  return action;
}

}  // namespace

void CheckpointLifecycle::Begin(Job* job, absl::Time now) {
  if (!CanCheckpoint(job->config)) return;
  JobCheckpoints::Options options;
  options.config = job->config.checkpoint();
  options.root = CheckpointRoot(job->config);
  options.worker_num = job->spec.worker_num();
  options.pserver_num = static_cast<uint32_t>(job->pservers.size());
  if (job->resume) options.first_step = job->resume->state().global_step();
  job->checkpoints.emplace(std::move(options), now);
  if (job->resume) job->checkpoints->SetNewest(job->resume->manifest, job->resume->age, now);
  // The assignments and orders that the members get next say what is asked.
  job->told_asked = job->checkpoints->asked();
}

void CheckpointLifecycle::PhaseChanged(Job* job, absl::Time now) {
  if (!job->checkpoints || !job->run) return;
  const uint64_t per_epoch = job->run->steps_per_epoch();
  job->checkpoints->SetSteps(per_epoch, per_epoch * job->config.train().epochs());
  job->checkpoints->NoteStep(job->run->least_step(), job->run->step_limit(), now);
  job->checkpoints->Plan(now);
  Apply(job, now);
}

void CheckpointLifecycle::TakeHosted(const Member& pserver, const HostedCut& cut, Job* job,
                                     absl::Time now) {
  if (!job->checkpoints || job->over()) return;
  const auto at = std::find(job->pservers.begin(), job->pservers.end(), pserver.id);
  if (at == job->pservers.end()) return;
  job->checkpoints->TakeHosted(static_cast<uint32_t>(at - job->pservers.begin()), cut, now);
  job->progress_untold = true;
  Apply(job, now);
}

void CheckpointLifecycle::TakeWorker(const Member& worker, const WorkerCut& cut, Job* job,
                                     absl::Time now) {
  if (!job->checkpoints || job->over() || cut.job_id() != job->job_id) return;
  const RankSlot* const slot = job->SlotOf(worker.id);
  if (slot == nullptr || slot->incarnation() != cut.incarnation() ||
      cut.rank() != job->rank_of.at(worker.id)) {
    return;
  }
  job->checkpoints->TakeWorker(cut, now);
  Apply(job, now);
}

void CheckpointLifecycle::Tick(Job* job, absl::Time now) {
  if (!job->checkpoints || job->over() || !job->run) return;
  const uint64_t step = std::max(job->run->least_step(), ReportedStep(*job, *parts_.members));
  job->checkpoints->NoteStep(step, job->run->step_limit(), now);
  if (parts_.pauses->Since(job->checkpoints->progressed_at(), now) >= wait_)
    job->checkpoints->GiveUpWaiting(wait_, now);
  job->checkpoints->Plan(now);
  Apply(job, now);
}

void CheckpointLifecycle::Written(Job* job, uint64_t number, const absl::Status& status,
                                  const std::string& warning, absl::Time now) {
  if (!job->checkpoints) return;
  job->checkpoints->Committed(number, status, now);
  if (!warning.empty() &&
      std::count(job->warnings.begin(), job->warnings.end(), warning) == 0) {
    job->warnings.push_back(warning);
  }
  Apply(job, now);
}

void CheckpointLifecycle::End(Job* job, absl::Time now) {
  if (!job->checkpoints) return;
  job->checkpoints->End(now);
  Apply(job, now);
}

absl::StatusOr<CheckpointJobReply> CheckpointLifecycle::Demand(Job* job, uint64_t number,
                                                               absl::Time now) {
  CheckpointJobReply reply;
  if (number != 0 && job->checkpoints) {
    if (const auto* outcome = job->checkpoints->OutcomeOf(number)) return ReplyOf(*outcome);
    if (number <= job->checkpoints->over()) {
      return absl::NotFoundError(absl::StrCat("the outcome of checkpoint ", number, " of job ",
                                              job->job_id, " is no longer known"));
    }
  }
  if (job->over()) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job->job_id, " is over, so it makes no checkpoint"));
  }
  if (!CanCheckpoint(job->config)) {
    return absl::FailedPreconditionError(absl::StrCat(
        "job ", job->job_id, " makes no checkpoints: ",
        job->config.evaluate_only()
            ? "it only evaluates"
            : absl::StrCat("mode ", ModeName(ModeOf(job->config.strategy())), " has none")));
  }
  if (!job->checkpoints) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job->job_id, " does not run yet; ask again when it trains"));
  }
  if (!job->checkpoints->can_begin() && number == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("job ", job->job_id, " has trained its last step, so it makes no checkpoint"));
  }
  reply.set_number(number != 0 ? number : job->checkpoints->Demand(now));
  Apply(job, now);
  return reply;
}

void CheckpointLifecycle::Apply(Job* job, absl::Time now) {
  JobCheckpoints& checkpoints = *job->checkpoints;
  if (checkpoints.needs_state()) {
    checkpoints.SetState(job->run->StateAt(checkpoints.open_step(), now), now);
    parts_.effects->StatusChanged(job);
  }
  const absl::Time cut_at = checkpoints.begun_at();
  if (std::optional<Manifest> manifest = checkpoints.TakeCommit())
    WriteManifest(*job, *std::move(manifest), cut_at);
  for (const JobCheckpoints::Discard& discard : checkpoints.TakeDiscards(now))
    DiscardFiles(*job, discard, now);
  if (std::string warning = checkpoints.TakeWarning(); !warning.empty())
    job->warnings.push_back(std::move(warning));
  if (!(checkpoints.asked() == job->told_asked)) {
    job->told_asked = checkpoints.asked();
    Member* rank_0 = job->ranks.empty() ? nullptr : parts_.members->ById(job->ranks[0].member_id());
    if (rank_0 != nullptr) parts_.effects->DesiredChanged(rank_0);
  }
  if (checkpoints.over() != job->told_over) {
    job->told_over = checkpoints.over();
    for (const uint64_t id : job->pservers) {
      if (Member* member = parts_.members->ById(id)) parts_.effects->DesiredChanged(member);
    }
    parts_.effects->StatusChanged(job);
  }
}

void CheckpointLifecycle::WriteManifest(const Job& job, Manifest manifest, absl::Time cut_at) {
  manifest.set_job_id(job.job_id);
  *manifest.mutable_tables() = job.spec.tables();
  const uint64_t number = job.checkpoints->over() + 1;
  OutputAction action = ActionOf(job, OutputAction::kCheckpoint, number, cut_at);
  action.manifest = std::move(manifest);
  parts_.effects->Write(std::move(action));
}

void CheckpointLifecycle::DiscardFiles(const Job& job, const JobCheckpoints::Discard& discard,
                                       absl::Time now) {
  OutputAction action = ActionOf(job, OutputAction::kDiscard, discard.number, now);
  action.manifest.set_global_step(discard.step);
  action.why = discard.why;
  parts_.effects->Write(std::move(action));
}

}  // namespace sluice
