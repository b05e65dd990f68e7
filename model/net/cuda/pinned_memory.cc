#include "model/net/cuda/pinned_memory.h"

#include <cuda_runtime_api.h>

#include <iterator>

namespace sluice::cuda {

void* PinnedMemory::Allocate(size_t bytes) {
  void* block = nullptr;
  if (cudaSetDevice(ordinal_) != cudaSuccess ||
      cudaHostAlloc(&block, bytes, cudaHostAllocDefault) != cudaSuccess) {
    (void)cudaGetLastError();  // so that the next call does not report it
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
  // The last holder frees the block, on any thread. Without cudaSetDevice, a thread that has chosen
  // no device would use the first one.
  if (cudaSetDevice(ordinal_) != cudaSuccess || cudaFreeHost(block) != cudaSuccess)
    (void)cudaGetLastError();  // so that the next call does not report it
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
