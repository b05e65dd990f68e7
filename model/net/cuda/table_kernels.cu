// Kernels that loop over the items of table_kernels.h, and their launches.
#include "model/net/cuda/table_launches.h"
#include "common/cuda/launch.h"
#include "model/net/cuda/table_kernels.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {
namespace {

__global__ void FillKernel(FillArgs args) {
  const uint64_t items = args.items();
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) FillItem(args, at);
}

__global__ void DeltaKernel(DeltaArgs args) {
  const uint64_t items = args.items();
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) DeltaItem(args, at);
}

__global__ void MergeKernel(MergeArgs args) {
  const uint64_t items = args.items();
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) MergeItem(args, at);
}

__global__ void ScalesKernel(UpdateArgs args) {
  const uint64_t rows = args.clip_rows();
  for (uint64_t row = FirstItem(); row < rows; row += ItemStep()) ScaleOfRow(args, row);
}

__global__ void UpdateKernel(UpdateArgs args) {
  const uint64_t items = args.items();
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) UpdateItem(args, at);
}

// Sums the kNormLanes values of a block; every thread gets the sum.
__device__ double SumOfLanes(double value, double* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (uint32_t half = kNormLanes / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  return shared[0];
}

// Each block takes one tile at a time.
__global__ void SquaresKernel(SquaresArgs args) {
  __shared__ double shared[kNormLanes];
  for (uint64_t tile = blockIdx.x; tile < args.tiles(); tile += gridDim.x) {
    const double sum = SumOfLanes(SquaresLane(args, tile, threadIdx.x), shared);
    if (threadIdx.x == 0) args.partials[tile] = sum;
    __syncthreads();
  }
}

// Runs in one block.
__global__ void NormKernel(NormArgs args) {
  __shared__ double shared[kNormLanes];
  const double sum = SumOfLanes(NormLane(args, threadIdx.x), shared);
  if (threadIdx.x == 0) *args.global = formula::ClipScale(sum, args.limit);
}

}  // namespace

void LaunchFill(cudaStream_t stream, const FillArgs& args) {
  Launch(FillKernel, Blocks(args.items()), kThreads, stream, args);
}

void LaunchDelta(cudaStream_t stream, const DeltaArgs& args) {
  Launch(DeltaKernel, Blocks(args.items()), kThreads, stream, args);
}

void LaunchMerge(cudaStream_t stream, const MergeArgs& args) {
  Launch(MergeKernel, Blocks(args.items()), kThreads, stream, args);
}

void LaunchScales(cudaStream_t stream, const UpdateArgs& args) {
  Launch(ScalesKernel, Blocks(args.clip_rows()), kThreads, stream, args);
}

void LaunchUpdate(cudaStream_t stream, const UpdateArgs& args) {
  Launch(UpdateKernel, Blocks(args.items()), kThreads, stream, args);
}

void LaunchSquares(cudaStream_t stream, const SquaresArgs& args) {
  Launch(SquaresKernel, Blocks(args.tiles() * kNormLanes), kNormLanes, stream, args);
}

void LaunchNorm(cudaStream_t stream, const NormArgs& args) {
  Launch(NormKernel, 1, kNormLanes, stream, args);
}

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
