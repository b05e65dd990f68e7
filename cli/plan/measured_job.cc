#include "cli/plan/measured_job.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/config/job_config.h"
#include "common/config/job_validation.h"
#include "model/built_in_models.h"

namespace sluice::plan {
namespace {

// Moves the dense tables of a collective job to the pservers, whose metrics count their bytes.
// Without COLLECTIVE, the other options of the exchange between workers are refused.
void KeepDenseTablesOnPservers(JobConfig* job) {
  if (!WorkersKeepDenseTables(*job)) return;
  SyncConfigs* sync = job->mutable_strategy()->mutable_sync_configs();
  sync->clear_dense();
  sync->clear_engine();
  sync->clear_fuse_mb();
  sync->clear_fuse_layers();
  sync->clear_comm_num();
  for (TableConfig& table : *job->mutable_tables())
    if (table.update_at() == TableConfig::COLLECTIVE) table.clear_update_at();
}

// Clears what only the job's own mode allows.
void SetMode(Mode mode, uint32_t k_steps, JobConfig* job) {
  if (mode != ModeOf(job->strategy())) {
    job->clear_strategy();
    job->mutable_strategy()->set_a_sync(mode != Mode::kSync);
    if (mode == Mode::kGeo)
      job->mutable_strategy()->mutable_a_sync_configs()->set_k_steps(static_cast<int>(k_steps));
    job->mutable_train()->clear_pipeline_depth();
    for (TableConfig& table : *job->mutable_tables()) {
      table.clear_update_at();
      if (mode == Mode::kGeo) table.clear_wire_type();
    }
  }
}

}  // namespace

PlanMode PlanModeOf(const JobConfig& job) {
  switch (ModeOf(job.strategy())) {
    case Mode::kSync:
      return WorkersKeepDenseTables(job) ? PlanMode::kCollective : PlanMode::kSync;
    case Mode::kGeo:
      return PlanMode::kGeo;
    case Mode::kAsync:
      break;
  }
  return PlanMode::kAsync;
}

absl::StatusOr<JobConfig> MeasuredJob(const JobConfig& job, Mode mode, uint32_t k_steps,
                                      const std::vector<std::string>& files,
                                      const std::string& folder) {
  if (job.evaluate_only()) {
    return absl::InvalidArgumentError(
        "evaluate_only: a job that trains nothing has no step to measure; remove it");
  }
  JobConfig measured = job;
  SetMode(mode, k_steps, &measured);
  KeepDenseTablesOnPservers(&measured);
  measured.set_worker_num(1);
  measured.set_output_dir(folder + "/output");
  measured.clear_trace_file();
  measured.clear_overwrite();
  // The values do not change what a step costs, and loading them would take time.
  measured.clear_initial_model();
  measured.clear_initial_checkpoint();
  measured.mutable_data()->clear_train_files();
  for (const std::string& file : files) measured.mutable_data()->add_train_files(file);
  measured.mutable_data()->clear_eval_files();
  // A cache of the sample must not end up among those of the whole data.
  if (measured.data().cache()) measured.mutable_data()->set_cache_dir(folder + "/cache");
  measured.clear_eval();
  // Nothing but steps may run in the windows: no checkpoint, evaluation or saved model.
  measured.clear_checkpoint();
  measured.mutable_checkpoint()->set_keep(0);
  // SHRINK needs checkpoints. The measurement ends with the first loss in any case.
  if (measured.strategy().has_sync_configs())
    measured.mutable_strategy()->mutable_sync_configs()->clear_on_worker_loss();
  measured.mutable_checkpoint()->set_save_final_model(false);
  measured.mutable_train()->clear_early_stop();
  measured.clear_recovery();
  // The sample is short, and the measurement ends the job when it has seen enough.
  measured.mutable_train()->set_epochs(kMaxEpochs);
  measured.mutable_train()->set_log_every(1);  // the time of each step
  return EffectiveJobConfig(std::move(measured), "", BuiltInSpecs());
}

}  // namespace sluice::plan
