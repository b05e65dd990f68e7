#include "common/cuda/cuda_memory.h"

#include <cuda_runtime_api.h>

#include "absl/strings/str_format.h"
#include "common/cuda/cuda_status.h"

namespace sluice::cuda {

DeviceBlock::~DeviceBlock() { Release(); }

void DeviceBlock::Release() {
  if (data_ != nullptr) (void)cudaFree(data_);
  memory_.used_.fetch_sub(capacity_, std::memory_order_relaxed);
  data_ = nullptr;
  capacity_ = 0;
}

absl::Status DeviceBlock::Reserve(size_t bytes) {
  if (bytes <= capacity_) return absl::OkStatus();
  // The old block goes first, so that old and new need not fit at the same time.
  Release();
  const size_t others = memory_.used();
  if (bytes > memory_.limit_ || others > memory_.limit_ - bytes) {
    return absl::ResourceExhaustedError(absl::StrFormat(
        "%s: %s needs %d bytes and %d are in use, but the limit is %d (device_memory_fraction); "
        "raise it, or lower %s",
        memory_.device_, what_, bytes, others, memory_.limit_, advice_));
  }
  const cudaError_t error = cudaMalloc(reinterpret_cast<void**>(&data_), bytes);
  if (error != cudaSuccess) {
    data_ = nullptr;
    const absl::Status status = CudaStatus(error, "cudaMalloc");
    return absl::Status(
        status.code(),
        absl::StrFormat("%s: %s of %d bytes: %s; other programs may hold the "
                        "device's memory (see nvidia-smi)",
                        memory_.device_, what_, bytes, std::string(status.message())));
  }
  capacity_ = bytes;
  memory_.used_.fetch_add(bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

PinnedBlock::~PinnedBlock() { Release(); }

void PinnedBlock::Release() {
  if (data_ != nullptr) (void)cudaFreeHost(data_);
  data_ = nullptr;
  capacity_ = 0;
}

absl::Status PinnedBlock::Reserve(size_t bytes) {
  if (bytes <= capacity_) return absl::OkStatus();
  Release();
  SLUICE_RETURN_IF_CUDA_ERROR(
      cudaHostAlloc(reinterpret_cast<void**>(&data_), bytes, cudaHostAllocDefault));
  capacity_ = bytes;
  return absl::OkStatus();
}

}  // namespace sluice::cuda
