#include "common/base/bf16.h"
#include "common/collective/nccl_kernels.h"
#include "common/cuda/launch.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {
namespace {

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
  for (uint64_t i = FirstItem(); i < args.n; i += ItemStep()) {
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

}  // namespace

void LaunchRankReduction(cudaStream_t stream, const RankReductionArgs& args) {
  Launch(RankReductionKernel, Blocks(args.n), kThreads, stream, args);
}

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
