// Makes the jobs of the GPU rows and their floor, and says why a machine cannot measure them.
//
// Thread safety: functions without state.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "bench/gpu_floor.h"
#include "bench/model_step.h"

namespace sluice::bench {

// standard: 26 x 10, 400-400-400; wide: 26 x 64, 1024-512-256.
JobConfig GpuJob(bool wide, size_t batch, const std::string& data_glob,
                 const OptimizerConfig& optimizer);
// The floor of `step`, a step of that job.
absl::StatusOr<std::unique_ptr<GpuFloor>> GpuFloorOf(const JobConfig& job, const ModelStep& step,
                                                     MatmulPrecision precision);
// Why this machine cannot measure the GPU rows; "" when it has a device.
std::string NoGpu();

}  // namespace sluice::bench
