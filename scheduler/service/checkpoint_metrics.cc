#include "scheduler/service/checkpoint_metrics.h"

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include <iterator>

namespace sluice {

void CheckpointMetrics::Update(const ClusterStatus& status) {
  MutexLock lock(&mutex_);
  for (const JobStatus& job : status.jobs()) {
    const bool over =
        job.state() == JOB_DONE || job.state() == JOB_FAILED || job.state() == JOB_CANCELLED;
    if (over) continue;
    const std::string& id = job.job_id();
    SetRecovery(id, job.recovery());
    if (!job.has_checkpoint()) continue;
    const CheckpointStatus& checkpoint = job.checkpoint();
    Set(id, "sluice_scheduler_checkpoints_made", "Complete checkpoints of the job",
        checkpoint.made());
    Set(id, "sluice_scheduler_checkpoints_failed", "Checkpoints of the job that were given up",
        checkpoint.failed());
    if (checkpoint.step() > 0 || checkpoint.age_s() > 0) {
      Set(id, "sluice_scheduler_checkpoint_age_seconds",
          "Age of the newest complete checkpoint; until there is one, time since the job began to "
          "run",
          checkpoint.age_s());
    }
    if (checkpoint.step() == 0) continue;
    Set(id, "sluice_scheduler_checkpoint_seconds",
        "Time that the newest complete checkpoint took to write", checkpoint.seconds());
  }
  for (auto it = entries_.begin(); it != entries_.end();) {
    const bool keep = it->second.set;
    it->second.set = false;
    if (!keep) it->second.remove();
    it = keep ? std::next(it) : entries_.erase(it);
  }
}

void CheckpointMetrics::SetRecovery(const std::string& job, const Recovery& recovery) {
  Set(job, "sluice_scheduler_recovery_worker_losses", "Workers that the job has lost",
      recovery.worker_losses());
  Set(job, "sluice_scheduler_recovery_pserver_losses", "Pservers that the job has lost",
      recovery.pserver_losses());
  Set(job, "sluice_scheduler_recovery_rollbacks",
      "Times that the whole job went back to a checkpoint, or to its beginning",
      recovery.rollbacks());
  Set(job, "sluice_scheduler_recovery_steps_rolled_back", "Steps that rollbacks have undone",
      recovery.steps_rolled_back());
  Set(job, "sluice_scheduler_recovery_examples_replayed",
      "Examples that losses made the job train again", recovery.examples_replayed());
  Set(job, "sluice_scheduler_recovery_updates_lost",
      "Updates that shards of lost pservers lack, in the model of the present attempt",
      recovery.updates_lost());
}

void CheckpointMetrics::Set(const std::string& job, const std::string& name,
                            const std::string& help, double value) {
  // The registry returns the family and the series of an earlier call.
  auto& family = prometheus::BuildGauge().Name(name).Help(help).Register(registry_);
  prometheus::Gauge& gauge = family.Add({{"job", job}});
  gauge.Set(value);
  Entry& entry = entries_[{name, job}];
  entry.set = true;
  entry.remove = [&family, &gauge] { family.Remove(&gauge); };
}

}  // namespace sluice
