#include "cli/cluster/worker_devices.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "cli/screen/format.h"
#include "common/base/status_macros.h"
#include "common/config/data_format.h"
#include "common/config/device_request.h"
#include "model/model_spec.h"

namespace sluice::cli {
namespace {

constexpr long kMaxCpuWorkers = 1000;

absl::Status Refuse(const std::string& origin, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(origin, ": ", why));
}

std::string Origin(const ParsedCommand& command, const char* flag) {
  return absl::StrCat("--", flag, "=", command.Text(flag));
}

}  // namespace

absl::StatusOr<uint32_t> WorkersOfGpus(const ParsedCommand& command) {
  if (!command.Given("gpus")) {
    // --cpu_workers adds workers to those of --gpus, so alone it means nothing.
    if (!command.Given("cpu_workers")) return 0;
    return Refuse(
        Origin(command, "cpu_workers"),
        "these workers would be in addition to the workers of --gpus; give --gpus=LIST, or "
        "--worker_num");
  }
  const std::string origin = Origin(command, "gpus");
  if (command.Given("device")) {
    return Refuse(origin, absl::StrCat("contradicts ", Origin(command, "device"),
                                       "; give one of them (CPU workers in addition to GPUs: "
                                       "--cpu_workers=N)"));
  }
  const auto gpus = ParseDeviceList(command.Text("gpus"));
  if (!gpus.ok()) return Refuse(origin, gpus.status().message());
  const long cpu_workers = command.Number("cpu_workers");
  if (cpu_workers < 0 || cpu_workers > kMaxCpuWorkers) {
    return Refuse(Origin(command, "cpu_workers"),
                  absl::StrCat("out of range; give 0 to ", kMaxCpuWorkers));
  }
  return static_cast<uint32_t>(gpus->size() + cpu_workers);
}

absl::StatusOr<WorkerDevices> DevicesOfWorkers(const ParsedCommand& command, uint32_t workers) {
  WorkerDevices devices;
  SLUICE_ASSIGN_OR_RETURN(const uint32_t of_gpus, WorkersOfGpus(command));
  if (of_gpus > 0) {
    devices.origin = Origin(command, "gpus");
    // Both numbers were given, and neither may win without a word.
    if (workers != of_gpus) {
      return Refuse(devices.origin,
                    absl::StrCat("with --cpu_workers=", command.Number("cpu_workers"), " makes ",
                                 Counted(of_gpus, "worker"), ", which contradicts worker_num ",
                                 workers, "; leave --worker_num out"));
    }
    SLUICE_ASSIGN_OR_RETURN(const std::vector<int> gpus, ParseDeviceList(command.Text("gpus")));
    for (const int gpu : gpus) devices.by_rank.push_back(absl::StrCat("cuda:", gpu));
    // The first ranks get the GPUs: the order of --gpus is the order of the ranks.
    devices.by_rank.resize(workers, "cpu");
    return devices;
  }
  const char* variable = std::getenv("SLUICE_DEVICE");
  std::string device = command.Text("device");
  devices.origin = absl::StrCat("--device=", device);
  // A flag wins over the variable; an empty variable counts as not set.
  if (!command.Given("device") && variable != nullptr && *variable != '\0') {
    device = variable;
    devices.origin = absl::StrCat("SLUICE_DEVICE=", device);
  }
  const absl::Status parsed = ParseDeviceRequest(device).status();
  if (!parsed.ok()) return Refuse(devices.origin, parsed.message());
  devices.by_rank.assign(workers, device);
  return devices;
}

absl::Status CheckDevices(const WorkerDevices& devices, const ListDevices& list,
                          std::string* gpus) {
  std::set<int> named;
  size_t wanted = 0;
  for (const std::string& device : devices.by_rank) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceRequest request, ParseDeviceRequest(device));
    if (request.kind == DeviceRequest::kCuda && !named.insert(request.ordinal).second) {
      return Refuse(devices.origin,
                    absl::StrCat(Counted(devices.by_rank.size(), "worker"),
                                 " on one device, which serves only one; give --worker_num=1, or "
                                 "--gpus=LIST with a device for each"));
    }
    if (request.kind == DeviceRequest::kCuda || request.kind == DeviceRequest::kNextCuda) ++wanted;
  }
  // The CUDA runtime is asked only when a worker needs it: starting it takes time and may fail
  // without harm.
  if (wanted == 0) return absl::OkStatus();
  const auto there = list();
  if (!there.ok()) {
    return Refuse(devices.origin,
                  absl::StrCat(there.status().message(), "; leave it out to compute on the CPU"));
  }
  std::string names;
  for (const CudaDeviceInfo& info : *there)
    absl::StrAppend(&names, names.empty() ? "" : ", ", "cuda:", info.ordinal, " (", info.name, ")");
  // The variable hides and renumbers devices, so the message shows it next to the names.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr) absl::StrAppend(&names, " with CUDA_VISIBLE_DEVICES=\"", visible, "\"");
  if (!named.empty() && *named.rbegin() >= static_cast<int>(there->size())) {
    return Refuse(devices.origin, absl::StrCat("cuda:", *named.rbegin(),
                                               " does not exist; this machine has ", names));
  }
  if (wanted > there->size()) {
    return Refuse(devices.origin,
                  absl::StrCat(Counted(wanted, "worker"), " on GPUs, but there ",
                               there->size() == 1 ? "is" : "are", " only ", names,
                               "; a device serves only one worker: give fewer workers"));
  }
  for (size_t rank = 0; gpus != nullptr && rank < devices.by_rank.size(); ++rank) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceRequest request, ParseDeviceRequest(devices.by_rank[rank]));
    if (request.kind != DeviceRequest::kCuda) continue;
    absl::StrAppend(gpus, "worker ", rank, " on ", (*there)[request.ordinal].ToString(), "\n");
  }
  return absl::OkStatus();
}

absl::Status CheckJobOnDevices(const JobConfig& job, const WorkerDevices& devices) {
  const auto& by_rank = devices.by_rank;
  // `auto` is decided by the worker itself, so only workers that are certainly on the CPU count
  // here.
  const auto on_cpu = std::count(by_rank.begin(), by_rank.end(), "cpu");
  if (on_cpu == 0) return absl::OkStatus();
  SLUICE_RETURN_IF_ERROR(CheckComputeType(job, /*on_cpu=*/true));
  if (!job.train().has_device_memory_fraction() || on_cpu < static_cast<long>(by_rank.size()))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      "train.device_memory_fraction: no worker of this job has a GPU; leave the field out, or give "
      "--gpus=LIST");
}

absl::Status CheckWeightsOnDevices(const JobConfig& job, const WorkerDevices& devices,
                                   const ListDevices& list) {
  const auto weighted =
      std::find_if(job.features().begin(), job.features().end(), [&job](const Feature& feature) {
        const CategoricalFeature& values = feature.categorical();
        return !values.weight_delimiter().empty() ||
               (feature.has_categorical() &&
                ValuesOf(job.data(), values.column()) == CellValues::kWeighted);
      });
  if (weighted == job.features().end()) return absl::OkStatus();
  std::optional<bool> has_gpu;  // this machine; unset: not known yet
  for (const std::string& device : devices.by_rank) {
    SLUICE_ASSIGN_OR_RETURN(const DeviceRequest request, ParseDeviceRequest(device));
    if (request.kind == DeviceRequest::kCpu) continue;
    if (request.kind == DeviceRequest::kAuto) {
      if (!has_gpu) {
        const auto there = list();
        has_gpu = there.ok() && !there->empty();
      }
      if (!*has_gpu) continue;
    }
    return Refuse(devices.origin,
                  absl::StrCat("the feature \"", weighted->name(),
                               "\" has values with weights (weight_delimiter, LIBFFM or one-hot "
                               "LIBSVM), which are computed on the CPU only; give --device=cpu"));
  }
  return absl::OkStatus();
}

std::vector<FlagSpec> DeviceFlags() {
  return {
      {"device", FlagKind::kText, "DEVICE", "cpu",
       "where every worker computes: cpu, cuda (each on its own GPU), cuda:N, or auto "
       "(SLUICE_DEVICE). CUDA, FP16 and NCCL have not run on a GPU yet"},
      {"gpus", FlagKind::kText, "LIST", "",
       "one worker on each of these GPUs, e.g. 0,1; sets worker_num (not run on a GPU yet)"},
      {"cpu_workers", FlagKind::kNumber, "N", "0",
       "workers on the CPU, in addition to the workers of --gpus"},
  };
}

}  // namespace sluice::cli
