// A CUDA device on the host, for .cu files that are compiled as C++. Blocks run one after another.
// The threads of a block take turns from barrier to barrier, so a missing barrier gives wrong
// results. Include this header before a .cu file, in a translation unit of its own. Launches run at
// once. With SLUICE_KERNELS_ON_STREAMS they are device code of a simulated CUDA (simulated/) and
// run when their stream reaches them.
//
// As on a device, shared memory holds what earlier blocks left. __shfl_xor_sync works among the
// threads of a warp that call it together.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <tuple>

#ifdef SLUICE_KERNELS_ON_STREAMS
#define SLUICE_KERNEL_NAMESPACE on_device
#else
#define SLUICE_KERNEL_NAMESPACE emulated
#endif
#define SLUICE_KERNEL_MAX_BLOCKS 3
#define __global__
#define __device__
#define __shared__ static

using cudaStream_t = struct CUstream_st*;

struct dim3 {
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  unsigned x, y, z;
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace sluice::cuda::emulated {

// Calls `thread` for every thread of every block.
void RunGrid(const dim3& grid, const dim3& block, const std::function<void()>& thread);
// Waits until all threads of the block that have not ended are here.
void Barrier();
// The word of a thread of the current warp, through which threads exchange values.
double* WarpWord(uint32_t lane);
// Makes `run` the next work of a stream of a simulated CUDA. False if the launch failed.
bool PutOnStream(cudaStream_t stream, std::function<void()> run);

}  // namespace sluice::cuda::emulated

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {

template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
  // A launch copies its arguments.
  const auto run = [kernel, grid, block, taken = std::tuple<Parameters...>(arguments...)] {
    emulated::RunGrid(grid, block, [&] { std::apply(kernel, taken); });
  };
#ifdef SLUICE_KERNELS_ON_STREAMS
  (void)emulated::PutOnStream(stream, run);  // cudaGetLastError reports a failure
#else
  run();
#endif
}

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE

inline void __syncthreads() { sluice::cuda::emulated::Barrier(); }

inline double __shfl_xor_sync(unsigned, double value, uint32_t lane_mask) {
  const uint32_t lane = threadIdx.x % 32;
  *sluice::cuda::emulated::WarpWord(lane) = value;
  sluice::cuda::emulated::Barrier();
  const double other = *sluice::cuda::emulated::WarpWord(lane ^ lane_mask);
  sluice::cuda::emulated::Barrier();
  return other;
}
