#include "scheduler/service/job_metrics.h"

#include <cmath>

#include "common/admin/metric_series.h"

namespace sluice {
namespace {

// The newest evaluation of the job; null: there is none.
const EvalMetrics* NewestEval(const JobStatus& job) {
  for (int i = job.epochs_log_size() - 1; i >= 0; --i) {
    if (job.epochs_log(i).eval().examples() > 0) return &job.epochs_log(i).eval();
  }
  return nullptr;
}

}  // namespace

struct JobMetrics::Families : SeriesGroup {
  using SeriesGroup::SeriesGroup;

  void SetProgress(const prometheus::Labels& labels, const JobStatus& job) {
    epoch.Set(labels, job.epoch());
    steps.Set(labels, static_cast<double>(job.global_step()));
    examples.Set(labels, static_cast<double>(job.examples()));
    rate.Set(labels, job.examples_per_second());
    // 0 until a worker has reported one.
    if (job.loss() > 0) loss.Set(labels, job.loss());
    const EvalMetrics* const eval = NewestEval(job);
    if (eval == nullptr) return;
    if (eval->has_auc()) auc.Set(labels, eval->auc());
    if (std::isfinite(eval->log_loss())) log_loss.Set(labels, eval->log_loss());
  }
  void SetRecovery(const prometheus::Labels& labels, const Recovery& recovery) {
    worker_losses.Set(labels, static_cast<double>(recovery.worker_losses()));
    pserver_losses.Set(labels, static_cast<double>(recovery.pserver_losses()));
    rollbacks.Set(labels, static_cast<double>(recovery.rollbacks()));
    steps_rolled_back.Set(labels, static_cast<double>(recovery.steps_rolled_back()));
    replayed.Set(labels, static_cast<double>(recovery.examples_replayed()));
    updates_lost.Set(labels, static_cast<double>(recovery.updates_lost()));
  }
  void SetCheckpoints(const prometheus::Labels& labels, const CheckpointStatus& checkpoint) {
    made.Set(labels, static_cast<double>(checkpoint.made()));
    failed.Set(labels, static_cast<double>(checkpoint.failed()));
    if (checkpoint.step() > 0 || checkpoint.age_s() > 0) age.Set(labels, checkpoint.age_s());
    if (checkpoint.step() > 0) seconds.Set(labels, checkpoint.seconds());
  }

  GaugeSeries& epoch = Gauge("sluice_scheduler_job_epoch", "Epoch of the job, from 1; 0: none yet");
  CounterSeries& steps = Counter("sluice_scheduler_job_steps_total",
                                 "Steps of the job; async and Geo: of all workers together");
  CounterSeries& examples =
      Counter("sluice_scheduler_job_examples_total", "Examples trained, over all epochs");
  GaugeSeries& rate = Gauge("sluice_scheduler_job_examples_per_second",
                            "Sum of the workers' training speeds; 0 outside of training");
  GaugeSeries& loss = Gauge("sluice_scheduler_job_loss",
                            "Mean loss of the workers over their last log_every steps");
  GaugeSeries& auc = Gauge("sluice_scheduler_job_auc", "AUC of the newest evaluation");
  GaugeSeries& log_loss =
      Gauge("sluice_scheduler_job_log_loss", "Log loss of the newest evaluation");
  CounterSeries& made =
      Counter("sluice_scheduler_checkpoints_made_total", "Complete checkpoints of the job");
  CounterSeries& failed = Counter("sluice_scheduler_checkpoints_failed_total",
                                  "Checkpoints of the job that were given up");
  GaugeSeries& age = Gauge("sluice_scheduler_checkpoint_age_seconds",
                           "Age of the newest complete checkpoint; until there is one, time since "
                           "the job began to run");
  GaugeSeries& seconds = Gauge("sluice_scheduler_checkpoint_seconds",
                               "Time that the newest complete checkpoint took to write");
  CounterSeries& worker_losses =
      Counter("sluice_scheduler_recovery_worker_losses_total", "Workers that the job has lost");
  CounterSeries& pserver_losses =
      Counter("sluice_scheduler_recovery_pserver_losses_total", "Pservers that the job has lost");
  CounterSeries& rollbacks =
      Counter("sluice_scheduler_recovery_rollbacks_total",
              "Times that the whole job went back to a checkpoint, or to its beginning");
  CounterSeries& steps_rolled_back = Counter("sluice_scheduler_recovery_steps_rolled_back_total",
                                             "Steps that rollbacks have undone");
  CounterSeries& replayed = Counter("sluice_scheduler_recovery_examples_replayed_total",
                                    "Examples that losses made the job train again");
  CounterSeries& updates_lost =
      Counter("sluice_scheduler_recovery_updates_lost_total",
              "Updates that shards of lost pservers lack, in the model of the present attempt");
};

JobMetrics::JobMetrics(prometheus::Registry* registry)
    : families_(std::make_unique<Families>(registry)) {}

JobMetrics::~JobMetrics() = default;

void JobMetrics::Update(const ClusterStatus& status) {
  MutexLock lock(&mutex_);
  for (const JobStatus& job : status.jobs()) {
    const bool over =
        job.state() == JOB_DONE || job.state() == JOB_FAILED || job.state() == JOB_CANCELLED;
    if (over) continue;
    const prometheus::Labels labels = {{"job", job.job_id()}};
    families_->SetProgress(labels, job);
    families_->SetRecovery(labels, job.recovery());
    if (job.has_checkpoint()) families_->SetCheckpoints(labels, job.checkpoint());
  }
  families_->RemoveOthers();
}

}  // namespace sluice
