#include "scheduler/registry/core_effects.h"

#include <algorithm>

namespace sluice {

OutputAction ActionOf(const Job& job, OutputAction::Kind kind, absl::Time time) {
  OutputAction action;
  action.kind = kind;
  action.job_id = job.id();
  action.time = time;
  action.config = job.config();
  action.resumes = !job.submission().resumed_from.empty();
  action.takes_over = action.resumes || job.submission().resume || job.config().overwrite();
  if (kind == OutputAction::kStarted || kind == OutputAction::kEnded)
    action.instances = job.attempt.instances();
  return action;
}

std::vector<Scalar> RecoveryPoints(const Job& job, uint64_t epoch) {
  std::vector<Scalar> points =
      job.recovery.Points(epoch, /*replayed=*/job.run()->result().examples_replayed());
  if (!job.checkpoints()) return points;
  const CheckpointStatus checkpoint = job.checkpoints()->status();
  if (checkpoint.step() > 0 || checkpoint.age_s() > 0)
    points.push_back({"checkpoint/age_s", epoch, checkpoint.age_s()});
  return points;
}

void CoreEffects::DesiredChanged(Member* member) {
  ++member->version;
  changed_.push_back(WaitKey::Desired(member->id));
}

void CoreEffects::StatusChanged(Job* job) {
  job->RaiseVersion();
  changed_.push_back(WaitKey::Status(job->id()));
}

void CoreEffects::WriteStartedAgain(const Job& job, absl::Time now) {
  OutputAction started = ActionOf(job, OutputAction::kStarted, now);
  started.again = true;
  Write(std::move(started));
}

void CoreEffects::WriteScalars(const Job& job, std::vector<Scalar> points, absl::Time now) {
  if (points.empty()) return;
  OutputAction action;
  action.kind = OutputAction::kScalars;
  action.job_id = job.id();
  action.time = now;
  action.scalars = std::move(points);
  Write(std::move(action));
}

void CoreEffects::WriteRecoveryPoints(const Job& job, absl::Time now) {
  if (!job.run() || job.over()) return;
  uint32_t epoch = job.run()->phases().current().epoch();
  // A run that continues first reads the data again, which is no epoch.
  if (job.attempt.point() != nullptr) epoch = std::max(epoch, job.attempt.point()->state().epoch());
  WriteScalars(job, RecoveryPoints(job, epoch + 1), now);
}

void CoreEffects::WriteLastScalars(Job* job, absl::Time now) {
  std::vector<Scalar> points = job->run()->TakeScalars();
  for (Scalar& point : job->attempt.steps()->TakePoints(/*all=*/true))
    points.push_back(std::move(point));
  WriteScalars(*job, std::move(points), now);
}

void CoreEffects::JobForgotten(const std::string& job_id) {
  changed_.push_back(WaitKey::Status(job_id));
  changed_.push_back(WaitKey::Phase(job_id));
}

void PublishRouteChange(Job* job, Membership* members, CoreEffects* effects) {
  job->attempt.RaiseGeneration(job->ranks.slots());
  // A worker fetches the route when a pserver refuses its old generation. ShardTakeover also tells
  // the workers, since a rank that sends nothing would never be refused.
  for (const uint64_t id : job->pservers.members()) {
    if (Member* member = members->ById(id)) effects->DesiredChanged(member);
  }
}

}  // namespace sluice
