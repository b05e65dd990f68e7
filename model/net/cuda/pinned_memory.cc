#include "model/net/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>

#include <iterator>

namespace sluice::cuda {

void* PinnedMemory::Allocate(size_t bytes) {
  void* block = nullptr;
  if (cudaSetDevice(ordinal_) != cudaSuccess ||
      cudaHostAlloc(&block, bytes, cudaHostAllocDefault) != cudaSuccess) {
    (void)cudaGetLastError();  // not the next call's
    return nullptr;
  }
  MutexLock lock(&mutex_);
  blocks_.emplace(reinterpret_cast<uintptr_t>(block), bytes);
  return block;
}

void PinnedMemory::Free(void* block) {
  {
    MutexLock lock(&mutex_);
    blocks_.erase(reinterpret_cast<uintptr_t>(block));
  }
  // By whoever held it last: on a thread that has chosen no device this would make use of the
  // first.
  if (cudaSetDevice(ordinal_) != cudaSuccess || cudaFreeHost(block) != cudaSuccess)
    (void)cudaGetLastError();  // not the next call's
}

bool PinnedMemory::Holds(const void* at, size_t bytes) const {
  const auto address = reinterpret_cast<uintptr_t>(at);
  MutexLock lock(&mutex_);
  const auto behind = blocks_.upper_bound(address);
  if (behind == blocks_.begin()) return false;
  const auto& [begin, size] = *std::prev(behind);
  return address - begin <= size && bytes <= size - (address - begin);
}

}  // namespace sluice::cuda
