// Decides on which devices the workers of a local cluster compute: --gpus and --cpu_workers, or
// --device.
//
// Thread safety: pure functions, except CheckDevices, which asks the CUDA runtime. Call it after
// StopSignal::Install, so that threads that the runtime starts inherit the blocked signals.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/screen/command_line.h"
#include "model/net/cuda/cuda_device.h"
#include "proto/config.pb.h"

namespace sluice::cli {

struct WorkerDevices {
  std::string origin;                // "--gpus=0,1", for messages
  std::vector<std::string> by_rank;  // what each worker gets as --device
};

// Returns the number of workers that --gpus and --cpu_workers ask for, or 0 when --gpus is not
// given. INVALID_ARGUMENT names flags that contradict each other.
absl::StatusOr<uint32_t> WorkersOfGpus(const ParsedCommand& command);
// Returns the devices of `workers` workers. With --gpus, the first workers get those GPUs and the
// others the CPU. Without it, all workers get --device, else SLUICE_DEVICE, else the CPU.
absl::StatusOr<WorkerDevices> DevicesOfWorkers(const ParsedCommand& command, uint32_t workers);

using ListDevices = std::function<absl::StatusOr<std::vector<CudaDeviceInfo>>()>;
// INVALID_ARGUMENT unless this machine has a CUDA device for each worker that asks for one. Calls
// `list` only when a worker does. If `gpus` is not null, it gets a line for each worker with a
// numbered GPU: "worker 0 on cuda:0: NVIDIA H100, capability 9.0, ...".
absl::Status CheckDevices(const WorkerDevices& devices, const ListDevices& list = &ListCudaDevices,
                          std::string* gpus = nullptr);
// INVALID_ARGUMENT when the job needs a feature that its workers' devices lack.
absl::Status CheckJobOnDevices(const JobConfig& job, const WorkerDevices& devices);

// INVALID_ARGUMENT when a feature has weights of values, which are computed on the CPU only, and a
// worker will have a GPU. `list` tells it for --device=auto, and is called for nothing else.
absl::Status CheckWeightsOnDevices(const JobConfig& job, const WorkerDevices& devices,
                                   const ListDevices& list = &ListCudaDevices);

// --device, --gpus, --cpu_workers.
std::vector<FlagSpec> DeviceFlags();

}  // namespace sluice::cli
