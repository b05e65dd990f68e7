// Measures the costs of a job's step: runs short jobs on local clusters of one worker.
//
// 1. The job itself with one pserver: the costs of a step. A Geo job runs in async mode. The dense
//    tables of a collective job are on the pserver, which counts their bytes.
// 2. The same with four pservers: the cost of a frame apart from its bytes.
// 3. The job in Geo mode.
// The jobs repeat the first lines of the training data and save nothing. Their files are in a
// temporary folder (TMPDIR), which is removed.
//
// Thread safety: one thread, the main thread (LocalCluster). Call it after StopSignal::Install.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "cli/plan/short_job.h"
#include "proto/config.pb.h"
#include "proto/plan.pb.h"

namespace sluice::plan {

struct MeasurementOptions {
  ShortCluster cluster;
  double seconds = 12;  // of training, over all jobs
  uint64_t sample_bytes = uint64_t{64} << 20;
  bool with_geo = true;
  uint32_t geo_k_steps = 100;  // unless the job has k_steps
};

// `job` is effective. CANCELLED when a signal to stop is pending; otherwise the errors of the
// clusters and the jobs. A Geo measurement that the job's configuration does not allow is left out
// with a note.
absl::StatusOr<PlanCosts> MeasureCosts(const JobConfig& job, const MeasurementOptions& options);

}  // namespace sluice::plan
