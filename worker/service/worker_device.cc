#include "worker/service/worker_device.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"

namespace sluice {
namespace {

absl::StatusOr<WorkerDevice> Take(const CudaDeviceInfo& info, const CudaDevices& devices) {
  WorkerDevice taken;
  taken.device.kind = ComputeDevice::kCuda;
  taken.device.ordinal = info.ordinal;
  // The claim comes first: opening makes a context, which takes memory on another worker's device.
  SLUICE_ASSIGN_OR_RETURN(taken.claim, DeviceClaim::Take(info.uuid));
  SLUICE_ASSIGN_OR_RETURN(const CudaDeviceInfo open, devices.open(info.ordinal));
  taken.line = absl::StrCat("computes on ", open.ToString());
  return taken;
}

absl::StatusOr<WorkerDevice> TakeOne(int ordinal, const std::vector<CudaDeviceInfo>& list,
                                     const CudaDevices& devices) {
  // For a device that does not exist, `open` fails and names those that do.
  if (ordinal >= static_cast<int>(list.size())) {
    SLUICE_RETURN_IF_ERROR(devices.open(ordinal).status());
    return absl::NotFoundError(
        absl::StrCat("cuda:", ordinal, " appeared only now; start the worker again"));
  }
  absl::StatusOr<WorkerDevice> taken = Take(list[ordinal], devices);
  if (!absl::IsAlreadyExists(taken.status())) return taken;
  return absl::FailedPreconditionError(
      absl::StrCat("cuda:", ordinal, " (", list[ordinal].name, "): ", taken.status().message(),
                   "; a device serves one worker: choose another device, or --device=cuda for the "
                   "first free one"));
}

absl::StatusOr<WorkerDevice> TakeNext(const std::vector<CudaDeviceInfo>& list,
                                      const CudaDevices& devices) {
  std::vector<std::string> why;
  for (const CudaDeviceInfo& info : list) {
    absl::StatusOr<WorkerDevice> taken = Take(info, devices);
    if (taken.ok()) return taken;
    why.push_back(
        absl::StrCat("cuda:", info.ordinal, " (", info.name, "): ", taken.status().message()));
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "no CUDA device is free: ", absl::StrJoin(why, "; "), "; start fewer workers on GPUs"));
}

absl::StatusOr<WorkerDevice> TakeCuda(const DeviceRequest& request, const CudaDevices& devices) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CudaDeviceInfo> list, devices.list());
  return request.kind == DeviceRequest::kCuda ? TakeOne(request.ordinal, list, devices)
                                              : TakeNext(list, devices);
}

absl::Status NotTaken(const DeviceRequest& request, const absl::Status& why) {
  return absl::Status(
      why.code(), absl::StrCat(request.origin, request.origin.empty() ? "" : ": ", why.message(),
                               "; use --device=cpu to compute on the CPU"));
}

}  // namespace

absl::StatusOr<DeviceClaim> DeviceClaim::Take(const std::string& uuid) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  // The first byte stays 0, which puts the name in the abstract namespace: no file is made
  // (unix(7)).
  const std::string name = absl::StrCat("sluice/device/", uuid);
  if (name.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("the name of device ", uuid, " is too long"));
  }
  std::copy(name.begin(), name.end(), address.sun_path + 1);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) {
    return absl::InternalError(absl::StrCat("cannot claim ", uuid, ": ", std::strerror(errno)));
  }
  DeviceClaim claim(fd);
  const socklen_t size = offsetof(sockaddr_un, sun_path) + 1 + name.size();
  // Binding the name is the claim: the kernel lets one socket have it, and frees it with the
  // socket.
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return claim;
  if (errno == EADDRINUSE) {
    return absl::AlreadyExistsError("another worker of this host has it");
  }
  return absl::InternalError(absl::StrCat("cannot claim ", uuid, ": ", std::strerror(errno)));
}

DeviceClaim::~DeviceClaim() {
  if (socket_ >= 0) close(socket_);
}

absl::StatusOr<CudaDeviceInfo> CudaDevices::OpenUsableCudaDevice(int ordinal) {
  SLUICE_ASSIGN_OR_RETURN(CudaDeviceInfo info, OpenCudaDevice(ordinal));
  SLUICE_RETURN_IF_ERROR(CheckCudaLibraries());
  return info;
}

absl::StatusOr<WorkerDevice> TakeDevice(const DeviceRequest& request, const CudaDevices& devices) {
  WorkerDevice cpu;
  cpu.line = "computes on the CPU";
  if (request.kind == DeviceRequest::kCpu) return cpu;
  absl::StatusOr<WorkerDevice> taken = TakeCuda(request, devices);
  if (request.kind != DeviceRequest::kAuto) {
    if (!taken.ok()) return NotTaken(request, taken.status());
    return taken;
  }
  if (!taken.ok()) {
    absl::StrAppend(&cpu.line,
                    ", because device auto found no usable GPU: ", taken.status().message());
    return cpu;
  }
  absl::StrAppend(&taken->line, " (device auto: the first free GPU)");
  return taken;
}

}  // namespace sluice
