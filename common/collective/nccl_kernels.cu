#include "common/collective/nccl_kernels.h"

#include "common/base/bf16.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {
namespace {

constexpr uint32_t kReductionThreads = 256;

__device__ inline float ValueOf(const RankReductionArgs& args, uint32_t rank, uint64_t i) {
  const uint64_t at = rank * args.stride + i;
  return args.halves ? WidenBf16(static_cast<const uint16_t*>(args.inputs)[at])
                     : static_cast<const float*>(args.inputs)[at];
}

// NaN when either is, as in reduce_loops.inc. `op`: Collective::Op, 2 for min and 3 for max.
__device__ inline float Combined(uint32_t op, float a, float b) {
  if (op < 2) return a + b;
  const bool second = op == 2 ? b < a : b > a;
  return b != b || second ? b : a;
}

__global__ void RankReductionKernel(RankReductionArgs args) {
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = static_cast<uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < args.n;
       i += step) {
    float sum = 0;
    bool first = true;
    for (uint32_t rank = 0; rank < args.ranks; ++rank) {
      const float weight = args.weights == nullptr ? 1.0f : args.weights[rank];
      if (weight == 0) continue;
      float value = ValueOf(args, rank, i);
      if (args.weights != nullptr) value = weight * value;
      sum = first ? value : Combined(args.op, sum, value);
      first = false;
    }
    if (!first && args.divisor != 1.0f) sum /= args.divisor;
    if (args.halves) {
      static_cast<uint16_t*>(args.result)[i] = RoundToBf16(sum);
    } else {
      static_cast<float*>(args.result)[i] = sum;
    }
  }
}

#ifdef __CUDACC__
// Tests run the kernel on an emulated device, with a Launch of their own.
template <typename... Parameters, typename... Arguments>
void Launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
  kernel<<<grid, block, 0, stream>>>(arguments...);
}
#endif

}  // namespace

void LaunchRankReduction(cudaStream_t stream, const RankReductionArgs& args) {
  const uint64_t wanted = (args.n + kReductionThreads - 1) / kReductionThreads;
#ifdef SLUICE_KERNEL_MAX_BLOCKS
  constexpr uint64_t kMost = SLUICE_KERNEL_MAX_BLOCKS;
#else
  constexpr uint64_t kMost = 1024;
#endif
  const auto blocks = static_cast<uint32_t>(wanted == 0 ? 1 : wanted < kMost ? wanted : kMost);
  Launch(RankReductionKernel, blocks, kReductionThreads, stream, args);
}

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
