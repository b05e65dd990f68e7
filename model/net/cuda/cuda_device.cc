#include "model/net/cuda/cuda_device.h"

#include <cuda_runtime_api.h>

#include <cstdlib>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/cuda/cuda_status.h"
#include "model/net/cuda/cublas_library.h"

namespace sluice {
namespace {

// The oldest compute capability that kernels are compiled for (CMAKE_CUDA_ARCHITECTURES).
constexpr int kOldestMajor = 8;

// " with CUDA_VISIBLE_DEVICES=..." when it is set.
std::string Visible() {
  // Messages name the variable, since it is the usual reason why a device is not seen.
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "" : absl::StrCat(" with CUDA_VISIBLE_DEVICES=\"", visible, "\"");
}

absl::Status NoDriver(int driver, int runtime) {
  if (driver == 0) {
    return absl::FailedPreconditionError(
        "no NVIDIA driver was found (libcuda.so.1 cannot be loaded); install the driver");
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "the NVIDIA driver is for CUDA ", CudaVersionText(driver), " but this program needs CUDA ",
      CudaVersionText(runtime), "; update the driver"));
}

absl::Status NoDevice() {
  return absl::NotFoundError(
      absl::StrCat("the NVIDIA driver shows no CUDA device", Visible(), "; check nvidia-smi"));
}

// "GPU-01234567-89ab-cdef-0123-456789abcdef"
std::string UuidText(const cudaUUID_t& uuid) {
  std::string text = absl::BytesToHexString(absl::string_view(uuid.bytes, sizeof(uuid.bytes)));
  for (const size_t dash : {20, 16, 12, 8}) text.insert(dash, "-");
  return "GPU-" + text;
}

absl::StatusOr<CudaDeviceInfo> Describe(int ordinal, int driver, int runtime) {
  cudaDeviceProp properties;
  SLUICE_RETURN_IF_CUDA_ERROR(cudaGetDeviceProperties(&properties, ordinal));
  CudaDeviceInfo info;
  info.ordinal = ordinal;
  info.name = properties.name;
  info.uuid = UuidText(properties.uuid);
  info.major = properties.major;
  info.minor = properties.minor;
  info.driver = driver;
  info.runtime = runtime;
  info.total_bytes = properties.totalGlobalMem;
  info.multiprocessors = properties.multiProcessorCount;
  return info;
}

}  // namespace

bool BuiltWithCuda() { return true; }

absl::StatusOr<std::vector<CudaDeviceInfo>> ListCudaDevices() {
  int driver = 0, runtime = 0, count = 0;
  SLUICE_RETURN_IF_CUDA_ERROR(cudaRuntimeGetVersion(&runtime));
  // The version stays 0 without a driver.
  if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess) (void)cudaGetLastError();  // so that the next call does not report it
  // Each of these has its own remedy, so they are told apart.
  if (error == cudaErrorInsufficientDriver || driver == 0) return NoDriver(driver, runtime);
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) return NoDevice();
  SLUICE_RETURN_IF_ERROR(cuda::CudaStatus(error, "cudaGetDeviceCount"));
  std::vector<CudaDeviceInfo> devices;
  for (int i = 0; i < count; ++i) {
    SLUICE_ASSIGN_OR_RETURN(CudaDeviceInfo info, Describe(i, driver, runtime));
    devices.push_back(std::move(info));
  }
  return devices;
}

absl::StatusOr<CudaDeviceInfo> OpenCudaDevice(int ordinal) {
  SLUICE_ASSIGN_OR_RETURN(const std::vector<CudaDeviceInfo> devices, ListCudaDevices());
  if (ordinal < 0 || ordinal >= static_cast<int>(devices.size())) {
    const auto name = [](std::string* out, const CudaDeviceInfo& d) {
      absl::StrAppend(out, "cuda:", d.ordinal, " (", d.name, ")");
    };
    return absl::NotFoundError(absl::StrCat("cuda:", ordinal, " does not exist; this process sees ",
                                            absl::StrJoin(devices, ", ", name), Visible(),
                                            "; choose one of them"));
  }
  CudaDeviceInfo info = devices[ordinal];
  if (info.major < kOldestMajor) {
    return absl::FailedPreconditionError(
        absl::StrCat("cuda:", ordinal, " (", info.name, ") has compute capability ", info.major,
                     ".", info.minor, "; at least ", kOldestMajor, ".0 is needed"));
  }
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
  SLUICE_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&info.free_bytes, &info.total_bytes));
  return info;
}

absl::Status CheckCudaDevice(int ordinal) {
  SLUICE_RETURN_IF_CUDA_ERROR(cudaSetDevice(ordinal));
  // Errors of kernels show at the next call that waits for them.
  SLUICE_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
  size_t there = 0, total = 0;
  SLUICE_RETURN_IF_CUDA_ERROR(cudaMemGetInfo(&there, &total));
  return absl::OkStatus();
}

absl::Status CheckCudaLibraries() { return cuda::CublasLibrary::Get().status(); }

}  // namespace sluice
