// The grid loops around row_kernels.h and sort_kernels.h.
#include "model/wide_deep/cuda/kernels.h"
#include "common/cuda/launch.h"
#include "model/wide_deep/cuda/row_kernels.h"
#include "model/wide_deep/cuda/sort_kernels.h"
#include "model/wide_deep/cuda/step_layout.h"

namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE {
namespace {

constexpr uint32_t kScanThreads = 1024;

__global__ void ExpandKernel(BatchView batch, uint32_t num_slots, uint32_t* cells) {
  const uint64_t items = static_cast<uint64_t>(batch.header->n) * num_slots;
  for (uint64_t cell = FirstItem(); cell < items; cell += ItemStep())
    ExpandCell(batch.key_offsets, static_cast<uint32_t>(cell), cells);
}

__device__ void ClearCounters(uint16_t* counters) {
  for (uint32_t d = 0; d < kSortDigits; ++d) counters[d * kSortStride + threadIdx.x] = 0;
}

// Each block counts one tile.
__global__ void CountKernel(SortArgs args) {
  __shared__ uint16_t counters[kSortDigits * kSortStride];
  ClearCounters(counters);
  CountKeys(args.rows, args.header->keys, args.pass, blockIdx.x, threadIdx.x, counters);
  __syncthreads();
  if (threadIdx.x < kSortDigits)
    args.counts[threadIdx.x * gridDim.x + blockIdx.x] = ScanDigit(threadIdx.x, counters);
}

// Runs as a single block.
__global__ void ScanKernel(uint32_t* counts, uint32_t count) {
  __shared__ uint32_t sums[kScanThreads];
  const uint32_t begin = StretchBegin(count, kScanThreads, threadIdx.x);
  const uint32_t end = StretchBegin(count, kScanThreads, threadIdx.x + 1);
  sums[threadIdx.x] = SumStretch(counts, begin, end);
  __syncthreads();
  for (uint32_t distance = 1; distance < kScanThreads; distance *= 2) {
    const uint32_t before = threadIdx.x >= distance ? sums[threadIdx.x - distance] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  ScanStretch(counts, begin, end, threadIdx.x > 0 ? sums[threadIdx.x - 1] : 0);
}

// Each block places the keys of one tile. It counts them again, since the counters of
// CountKernel were in shared memory.
__global__ void PlaceKernel(SortArgs args) {
  __shared__ uint16_t counters[kSortDigits * kSortStride];
  __shared__ uint32_t first[kSortDigits];
  const uint32_t keys = args.header->keys;
  ClearCounters(counters);
  CountKeys(args.rows, keys, args.pass, blockIdx.x, threadIdx.x, counters);
  __syncthreads();
  if (threadIdx.x < kSortDigits) {
    ScanDigit(threadIdx.x, counters);
    first[threadIdx.x] = args.counts[threadIdx.x * gridDim.x + blockIdx.x];
  }
  __syncthreads();
  PlaceKeys(args.rows, args.cells, keys, args.pass, blockIdx.x, threadIdx.x, first, counters,
            args.out_rows, args.out_cells);
}

__global__ void FindRowsKernel(const StepHeader* header, const uint32_t* sorted_rows,
                               uint32_t* row_begin) {
  const uint64_t items = static_cast<uint64_t>(header->rows) + 1;
  for (uint64_t row = FirstItem(); row < items; row += ItemStep())
    row_begin[row] = FirstOfRow(sorted_rows, header->keys, static_cast<uint32_t>(row));
}

// Each thread gathers one element of the deep input; neighbouring threads have neighbouring
// columns.
template <typename T>
__global__ void GatherKernel(NetView net, BatchView batch, uint32_t rows, uint32_t ld, T* to,
                             uint32_t* overflow) {
  const uint64_t items = static_cast<uint64_t>(rows) * ld;
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) {
    const uint32_t i = static_cast<uint32_t>(at / ld);
    GatherElement(net, batch, i, static_cast<uint32_t>(at - static_cast<uint64_t>(i) * ld), ld, to,
                  overflow);
  }
}

__global__ void SumChunksKernel(NetView net, BatchView batch, RowGradientView view) {
  const uint64_t items = static_cast<uint64_t>(Chunks(batch.header->keys)) * net.row_dim;
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) {
    const uint32_t chunk = static_cast<uint32_t>(at / net.row_dim);
    SumChunk(net, batch, view, chunk,
             static_cast<uint32_t>(at - static_cast<uint64_t>(chunk) * net.row_dim));
  }
}

__global__ void FinishRowsKernel(NetView net, BatchView batch, RowGradientView view) {
  const uint64_t items = static_cast<uint64_t>(batch.header->rows) * net.row_dim;
  for (uint64_t at = FirstItem(); at < items; at += ItemStep()) {
    const uint32_t row = static_cast<uint32_t>(at / net.row_dim);
    FinishRow(net, batch, view, row,
              static_cast<uint32_t>(at - static_cast<uint64_t>(row) * net.row_dim));
  }
}

}  // namespace

void LaunchExpandCells(cudaStream_t stream, const BatchView& batch, uint32_t num_slots,
                       uint32_t rows, uint32_t* cells) {
  const uint64_t items = static_cast<uint64_t>(rows) * num_slots;
  Launch(ExpandKernel, Blocks(items), kThreads, stream, batch, num_slots, cells);
}

void LaunchSortPass(cudaStream_t stream, const SortArgs& args) {
  const uint32_t tiles = SortTiles(args.keys);
  Launch(CountKernel, tiles, kSortThreads, stream, args);
  Launch(ScanKernel, 1, kScanThreads, stream, args.counts, kSortDigits * tiles);
  Launch(PlaceKernel, tiles, kSortThreads, stream, args);
}

void LaunchFindRows(cudaStream_t stream, const StepHeader* header, const uint32_t* sorted_rows,
                    uint32_t rows, uint32_t* row_begin) {
  Launch(FindRowsKernel, Blocks(rows + 1ull), kThreads, stream, header, sorted_rows, row_begin);
}

void LaunchGather(cudaStream_t stream, Element element, const NetView& net, const BatchView& batch,
                  uint32_t rows, uint32_t ld, void* to, uint32_t* overflow) {
  WithType(element, [&](auto type) {
    using T = decltype(type);
    Launch(GatherKernel<T>, Blocks(static_cast<uint64_t>(rows) * ld), kThreads, stream, net, batch,
           rows, ld, static_cast<T*>(to), overflow);
  });
}

void LaunchRowGradients(cudaStream_t stream, const NetView& net, const BatchView& batch,
                        const RowGradientView& view, uint32_t keys, uint32_t rows) {
  const uint64_t chunks = static_cast<uint64_t>(Chunks(keys)) * net.row_dim;
  if (keys > 0) {
    Launch(SumChunksKernel, Blocks(chunks), kThreads, stream, net, batch, view);
  }
  Launch(FinishRowsKernel, Blocks(static_cast<uint64_t>(rows) * net.row_dim), kThreads, stream, net,
         batch, view);
}

}  // namespace sluice::cuda::SLUICE_KERNEL_NAMESPACE
