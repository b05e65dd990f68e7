// Launches kernels whose threads loop over items.
//
// The launch is a function, so that tests can run the same kernels on an emulated device.
#pragma once

#include <cstdint>

#include "common/cuda/kernel_namespace.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {

constexpr uint32_t kThreads = 256;
// With more items, threads loop. Tests set a small number.
#ifdef SLUICE_KERNEL_MAX_BLOCKS
constexpr uint32_t kMaxBlocks = SLUICE_KERNEL_MAX_BLOCKS;
#else
constexpr uint32_t kMaxBlocks = 1u << 16;
#endif

// The number of blocks of kThreads threads for `items` items.
inline uint32_t Blocks(uint64_t items) {
  const uint64_t blocks = (items + kThreads - 1) / kThreads;
  if (blocks == 0) return 1;
  return blocks < kMaxBlocks ? static_cast<uint32_t>(blocks) : kMaxBlocks;
}

// A thread takes the items FirstItem, FirstItem + ItemStep, and so on.
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
