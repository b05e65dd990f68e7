// Launches the kernels in table_kernels.cu from plain C++.
//
// The arguments are as in table_kernels.h. Each function returns at once; cudaGetLastError
// reports a failed launch.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include "common/cuda/kernel_namespace.h"
#include "model/net/cuda/table_kernels.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {

void LaunchFill(cudaStream_t stream, const FillArgs& args);
void LaunchDelta(cudaStream_t stream, const DeltaArgs& args);
void LaunchMerge(cudaStream_t stream, const MergeArgs& args);
void LaunchScales(cudaStream_t stream, const UpdateArgs& args);
void LaunchUpdate(cudaStream_t stream, const UpdateArgs& args);
void LaunchSquares(cudaStream_t stream, const SquaresArgs& args);
void LaunchNorm(cudaStream_t stream, const NormArgs& args);

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
