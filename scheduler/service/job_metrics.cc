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
  void SetExports(const prometheus::Labels& labels, const ExportStatus& exported) {
    exports_made.Set(labels, static_cast<double>(exported.made()));
    exports_failed.Set(labels, static_cast<double>(exported.failed()));
    export_age.Set(labels, exported.age_s());
    if (exported.made() > 0) export_seconds.Set(labels, exported.seconds());
  }

  GaugeSeries& epoch = Gauge("sluice_scheduler_job_epoch");
  CounterSeries& steps = Counter("sluice_scheduler_job_steps_total");
  CounterSeries& examples = Counter("sluice_scheduler_job_examples_total");
  GaugeSeries& rate = Gauge("sluice_scheduler_job_examples_per_second");
  GaugeSeries& loss = Gauge("sluice_scheduler_job_loss");
  GaugeSeries& auc = Gauge("sluice_scheduler_job_auc");
  GaugeSeries& log_loss = Gauge("sluice_scheduler_job_log_loss");
  CounterSeries& made = Counter("sluice_scheduler_checkpoints_made_total");
  CounterSeries& failed = Counter("sluice_scheduler_checkpoints_failed_total");
  GaugeSeries& age = Gauge("sluice_scheduler_checkpoint_age_seconds");
  GaugeSeries& seconds = Gauge("sluice_scheduler_checkpoint_seconds");
  CounterSeries& exports_made = Counter("sluice_scheduler_exports_made_total");
  CounterSeries& exports_failed = Counter("sluice_scheduler_exports_failed_total");
  GaugeSeries& export_age = Gauge("sluice_scheduler_export_age_seconds");
  GaugeSeries& export_seconds = Gauge("sluice_scheduler_export_seconds");
  CounterSeries& worker_losses = Counter("sluice_scheduler_recovery_worker_losses_total");
  CounterSeries& pserver_losses = Counter("sluice_scheduler_recovery_pserver_losses_total");
  CounterSeries& rollbacks = Counter("sluice_scheduler_recovery_rollbacks_total");
  CounterSeries& steps_rolled_back = Counter("sluice_scheduler_recovery_steps_rolled_back_total");
  CounterSeries& replayed = Counter("sluice_scheduler_recovery_examples_replayed_total");
  CounterSeries& updates_lost = Counter("sluice_scheduler_recovery_updates_lost_total");
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
    if (job.has_export_()) families_->SetExports(labels, job.export_());
  }
  families_->RemoveOthers();
}

}  // namespace sluice
