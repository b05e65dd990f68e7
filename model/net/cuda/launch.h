// How the .cu files launch: threads that loop over items, and the launch itself as a function, so
// that tests can run the same kernels on an emulated device (tests/model/cuda/emulated_device.h).
#pragma once

#include <cstdint>

#include "model/net/cuda/kernel_namespace.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {

constexpr uint32_t kThreads = 256;
// Beyond, threads loop. Few in tests.
#ifdef SLUICE_KERNEL_MAX_BLOCKS
constexpr uint32_t kMaxBlocks = SLUICE_KERNEL_MAX_BLOCKS;
#else
constexpr uint32_t kMaxBlocks = 1u << 16;
#endif

// Blocks of kThreads for so many items.
inline uint32_t Blocks(uint64_t items) {
  const uint64_t blocks = (items + kThreads - 1) / kThreads;
  if (blocks == 0) return 1;
  return blocks < kMaxBlocks ? static_cast<uint32_t>(blocks) : kMaxBlocks;
}

// Items of a thread: FirstItem, + ItemStep, ...
__device__ inline uint64_t FirstItem() {
  return static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline uint64_t ItemStep() { return static_cast<uint64_t>(gridDim.x) * blockDim.x; }

#ifdef __CUDACC__
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
  kernel<<<grid, block, 0, stream>>>(arguments...);
}
#endif

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
