#include "worker/client_options.h"

#include "common/base/status_macros.h"

namespace sluice {

absl::StatusOr<ParameterClient::Options> ClientOptionsOf(const WorkerAssignment& assignment) {
  const JobSpec& job = assignment.job();
  const TrainConfig& train = job.config().train();
  ParameterClient::Options options;
  options.job_id = job.job_id();
  options.instance = job.instance();
  options.rank = assignment.rank();
  options.incarnation = assignment.incarnation();
  SLUICE_ASSIGN_OR_RETURN(options.tables, CreateTableLayouts(job.tables(), train.seed()));
  options.route = job.route();
  options.pipeline_depth = train.pipeline_depth();
  // A step may have to wait for a lost worker's replacement, which has a bound of its own.
  const RecoveryConfig& recovery = job.config().recovery();
  options.limits.timeout = absl::Seconds(train.step_timeout_s());
  if (recovery.max_losses() > 0) options.limits.timeout += absl::Seconds(recovery.wait_s());
  return options;
}

}  // namespace sluice
