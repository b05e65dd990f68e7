// The reduction over the ranks on a CUDA device, with the bits of RankReduction.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstdint>

#include "common/cuda/kernel_namespace.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {

// Pointers are to device memory. Values are floats, or bfloat16 when `halves` is set.
struct RankReductionArgs {
  const void* inputs = nullptr;    // [ranks, stride]
  const float* weights = nullptr;  // [ranks] of a weighted mean; null: another reduction
  void* result = nullptr;          // [n]
  uint64_t n = 0, stride = 0;
  uint32_t ranks = 0;
  uint32_t op = 0;    // Collective::Op, without weights; kAverage sums
  float divisor = 1;  // 1: none
  bool halves = false;
};

// Returns at once; cudaGetLastError reports a failed launch.
void LaunchRankReduction(cudaStream_t stream, const RankReductionArgs& args);

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
