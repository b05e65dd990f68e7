// Where the workers of a local cluster compute: --gpus and --cpu_workers, or --device.
//
// Thread safety: pure but for CheckDevices, which asks the CUDA runtime: after StopSignal::Install,
// as threads that it may start inherit the blocked signals.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/command_line.h"
#include "model/net/cuda/cuda_device.h"
#include "proto/config.pb.h"

namespace sluice::cli {

struct WorkerDevices {
  std::string origin;                // "--gpus=0,1", for messages
  std::vector<std::string> by_rank;  // what each worker gets as --device
};

// Workers that --gpus and --cpu_workers ask for; 0: --gpus is not given. INVALID_ARGUMENT says what
// contradicts what.
absl::StatusOr<uint32_t> WorkersOfGpus(const ParsedCommand& command);
// Of `workers` workers, first those with a GPU of --gpus; all have --device (else SLUICE_DEVICE,
// else the CPU) without it.
absl::StatusOr<WorkerDevices> DevicesOfWorkers(const ParsedCommand& command, uint32_t workers);

using ListDevices = std::function<absl::StatusOr<std::vector<CudaDeviceInfo>>()>;
// INVALID_ARGUMENT unless this machine has the CUDA devices that are asked for, one a worker. Asks
// `list` only when one is. `gpus`, unless null: a line for each worker with a GPU of its own,
// "worker 0 on cuda:0: NVIDIA H100, capability 9.0, ...".
absl::Status CheckDevices(const WorkerDevices& devices, const ListDevices& list = &ListCudaDevices,
                          std::string* gpus = nullptr);
// INVALID_ARGUMENT when the job needs what its workers' devices have not.
absl::Status CheckJobOnDevices(const JobConfig& job, const WorkerDevices& devices);

// --device, --gpus, --cpu_workers.
std::vector<FlagSpec> DeviceFlags();

}  // namespace sluice::cli
