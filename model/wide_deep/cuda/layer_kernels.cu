// The grid loops around layer_kernels.h.
#include "model/wide_deep/cuda/kernels.h"
#include "common/cuda/launch.h"
#include "model/wide_deep/cuda/layer_kernels.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {
namespace {

constexpr uint32_t kColumns = 32;  // columns that a block sums
constexpr uint32_t kFinishThreads = 64;

template <typename T>
__global__ void ConvertKernel(const float* weights, uint32_t in, uint32_t out, uint32_t ld, T* to,
                              uint32_t* overflow) {
  const uint64_t items = static_cast<uint64_t>(in) * ld;
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) {
    const uint32_t row = static_cast<uint32_t>(at / ld);
    ConvertWeight(weights, out, row, static_cast<uint32_t>(at - static_cast<uint64_t>(row) * ld),
                  ld, to, overflow);
  }
}

template <typename T>
__global__ void BiasReluKernel(BiasReluArgs args) {
  const uint32_t pairs = args.ld_h / 2;
  const uint64_t items = static_cast<uint64_t>(args.rows) * pairs;
  const StepHeader header = *args.header;
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) {
    const uint32_t i = static_cast<uint32_t>(at / pairs);
    BiasReluPair(header, args.example_id, args.layer, args.training, args.bias, args.units, i,
                 static_cast<uint32_t>(at - static_cast<uint64_t>(i) * pairs), args.z, args.ld_z,
                 static_cast<T*>(args.h), args.ld_h, args.overflow);
  }
}

// One warp computes one example.
template <typename T>
__global__ void LogitKernel(NetView net, BatchView batch, LogitInput<T> in, float* logits,
                            double* losses, float* d_logits) {
  const uint32_t lane = threadIdx.x % kWarp;
  const uint64_t warps = ItemStep() / kWarp;
  const uint32_t n = batch.header->n;
  for (uint64_t i = FirstItem() / kWarp; i < n; i += warps) {
    double sum = LogitLane(net, batch, in, static_cast<uint32_t>(i), lane);
    for (uint32_t other = kWarp / 2; other > 0; other /= 2)
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, other);
    if (lane != 0) continue;
    logits[i] = FinishLogit(in, sum);
    if (losses == nullptr) continue;
    LossOfLogit(logits[i], batch.label[i], batch.weight[i], batch.header->gradient_factor,
                &losses[i], &d_logits[i]);
  }
}

// A block sums kColumns columns of one slice, with kSliceLanes threads for each column. Grid:
// [column blocks, slices].
template <typename Op>
__global__ void ColumnSumsKernel(Op op, const StepHeader* header, uint32_t rows, uint32_t columns,
                                 uint32_t ld, double* partials) {
  __shared__ double shared[Op::kSums][kSliceLanes][kColumns];
  const uint32_t j = blockIdx.x * kColumns + threadIdx.x, slice = blockIdx.y;
  double sums[Op::kSums];
  for (uint32_t s = 0; s < Op::kSums; ++s) sums[s] = 0.0;
  if (j < ld) SliceLane(op, header->n, rows, columns, slice, threadIdx.y, j, sums);
  for (uint32_t s = 0; s < Op::kSums; ++s) shared[s][threadIdx.y][threadIdx.x] = sums[s];
  __syncthreads();
  if (threadIdx.y != 0 || j >= columns) return;
  const uint64_t width = static_cast<uint64_t>(Op::kSums) * columns;
  for (uint32_t s = 0; s < Op::kSums; ++s) {
    double sum = 0.0;
    for (uint32_t lane = 0; lane < kSliceLanes; ++lane) sum += shared[s][lane][threadIdx.x];
    partials[slice * width + s * columns + j] = sum;
  }
}

template <typename Targets>
__global__ void FinishSumsKernel(const double* partials, uint32_t slices, uint32_t width,
                                 Targets to) {
  const uint32_t j = static_cast<uint32_t>(FirstItem());
  if (j < width) WriteSum(to, j, FinishSum(partials, slices, width, j));
}

template <typename Op, typename Targets>
void SumColumns(cudaStream_t stream, const Op& op, const StepHeader* header, uint32_t rows,
                uint32_t columns, uint32_t ld, double* partials, const Targets& targets) {
  const uint32_t slices = Slices(rows), width = Op::kSums * columns;
  const dim3 grid((ld + kColumns - 1) / kColumns, slices), block(kColumns, kSliceLanes);
  Launch(ColumnSumsKernel<Op>, grid, block, stream, op, header, rows, columns, ld, partials);
  Launch(FinishSumsKernel<Targets>, (width + kFinishThreads - 1) / kFinishThreads, kFinishThreads,
         stream, partials, slices, width, targets);
}

}  // namespace

void LaunchConvertWeights(cudaStream_t stream, Element element, const float* weights, uint32_t in,
                          uint32_t out, uint32_t ld, void* to, uint32_t* overflow) {
  WithType(element, [&](auto type) {
    using T = decltype(type);
    Launch(ConvertKernel<T>, Blocks(static_cast<uint64_t>(in) * ld), kThreads, stream, weights, in,
           out, ld, static_cast<T*>(to), overflow);
  });
}

void LaunchBiasRelu(cudaStream_t stream, Element element, const BiasReluArgs& args) {
  const uint64_t items = static_cast<uint64_t>(args.rows) * (args.ld_h / 2);
  WithType(element, [&](auto type) {
    Launch(BiasReluKernel<decltype(type)>, Blocks(items), kThreads, stream, args);
  });
}

void LaunchLogits(cudaStream_t stream, Element element, const NetView& net, const BatchView& batch,
                  const LogitArgs& args) {
  const uint64_t threads = static_cast<uint64_t>(args.rows) * kWarp;
  WithType(element, [&](auto type) {
    using T = decltype(type);
    const LogitInput<T> in = {static_cast<const T*>(args.h),
                              args.output,
                              args.output_bias,
                              args.wide,
                              args.wide_bias,
                              args.units,
                              args.ld};
    Launch(LogitKernel<T>, Blocks(threads), kThreads, stream, net, batch, in, args.logits,
           args.losses, args.d_logits);
  });
}

void LaunchOutputBackward(cudaStream_t stream, Element element, const BackwardArgs& args) {
  WithType(element, [&](auto type) {
    using T = decltype(type);
    const OutputBackward<T> op = {static_cast<const T*>(args.h),
                                  args.output,
                                  args.d_logits,
                                  static_cast<T*>(args.dz),
                                  args.ld,
                                  args.dropout_scale,
                                  args.overflow};
    SumColumns(stream, op, args.header, args.rows, args.units, args.ld, args.partials, args.sums);
  });
}

void LaunchHiddenBackward(cudaStream_t stream, Element element, const BackwardArgs& args) {
  WithType(element, [&](auto type) {
    using T = decltype(type);
    const HiddenBackward<T> op = {static_cast<const T*>(args.h),
                                  args.product,
                                  static_cast<T*>(args.dz),
                                  args.ld,
                                  args.dropout_scale,
                                  args.overflow};
    SumColumns(stream, op, args.header, args.rows, args.units, args.ld, args.partials, args.sums);
  });
}

void LaunchWideSums(cudaStream_t stream, const WideArgs& args) {
  const uint32_t columns = args.backward.num_wide_numeric + 2;
  SumColumns(stream, args.backward, args.header, args.rows, columns, columns, args.partials,
             args.sums);
}

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
