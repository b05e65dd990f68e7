#include <cstring>
#include <cub/cub.cuh>

#include "bench/gpu_dedup.h"

namespace sluice::bench {
namespace {

constexpr uint32_t kThreads = 256;

__global__ void NumberKernel(uint32_t n, uint32_t* position) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) position[i] = i;
}

// 1 where a sorted key is not the one before it.
__global__ void FlagKernel(const uint64_t* sorted, uint32_t n, uint32_t* flag) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) flag[i] = i > 0 && sorted[i] != sorted[i - 1] ? 1 : 0;
}

__global__ void PlaceKernel(const uint64_t* sorted, const uint32_t* position, const uint32_t* rank,
                            uint32_t n, uint64_t* unique, uint32_t* number, uint32_t* count) {
  const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  number[position[i]] = rank[i];
  if (i == 0 || rank[i] != rank[i - 1]) unique[rank[i]] = sorted[i];
  if (i == n - 1) *count = rank[i] + 1;
}

class CubDedup : public GpuDedup {
 public:
  explicit CubDedup(size_t n) : n_(static_cast<uint32_t>(n)) {}
  ~CubDedup() override {
    cudaFree(device_);
    cudaFreeHost(pinned_);
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
  }

  bool Prepare() {
    cub::DeviceRadixSort::SortPairs(nullptr, sort_bytes_, keys_, sorted_, first_, position_, n_);
    cub::DeviceScan::InclusiveSum(nullptr, scan_bytes_, flag_, rank_, n_);
    const size_t scratch = sort_bytes_ > scan_bytes_ ? sort_bytes_ : scan_bytes_;
    // Keys of 8 bytes first, so that all is aligned.
    const size_t n = (n_ + 63) / 64 * 64;
    if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess ||
        cudaMalloc(reinterpret_cast<void**>(&device_), n * 44 + 256 + scratch) != cudaSuccess ||
        cudaMallocHost(reinterpret_cast<void**>(&pinned_), n * 20 + 256) != cudaSuccess)
      return false;
    keys_ = reinterpret_cast<uint64_t*>(device_);
    sorted_ = keys_ + n, unique_ = sorted_ + n;
    first_ = reinterpret_cast<uint32_t*>(unique_ + n);
    position_ = first_ + n, flag_ = position_ + n, rank_ = flag_ + n, number_ = rank_ + n;
    count_ = number_ + n;
    scratch_ = reinterpret_cast<char*>(count_) + 256;
    up_ = reinterpret_cast<uint64_t*>(pinned_);
    unique_down_ = up_ + n;
    number_down_ = reinterpret_cast<uint32_t*>(unique_down_ + n);
    return true;
  }

  size_t Run(const uint64_t* keys, uint64_t* unique, uint32_t* number) override {
    const uint32_t blocks = (n_ + kThreads - 1) / kThreads;
    std::memcpy(up_, keys, n_ * sizeof *keys);
    cudaMemcpyAsync(keys_, up_, n_ * sizeof *keys_, cudaMemcpyHostToDevice, stream_);
    NumberKernel<<<blocks, kThreads, 0, stream_>>>(n_, first_);
    cub::DeviceRadixSort::SortPairs(scratch_, sort_bytes_, keys_, sorted_, first_, position_, n_, 0,
                                    64, stream_);
    FlagKernel<<<blocks, kThreads, 0, stream_>>>(sorted_, n_, flag_);
    cub::DeviceScan::InclusiveSum(scratch_, scan_bytes_, flag_, rank_, n_, stream_);
    PlaceKernel<<<blocks, kThreads, 0, stream_>>>(sorted_, position_, rank_, n_, unique_, number_,
                                                  count_);
    uint32_t* const count = number_down_ + (n_ + 63) / 64 * 64;
    cudaMemcpyAsync(count, count_, sizeof *count, cudaMemcpyDeviceToHost, stream_);
    if (cudaStreamSynchronize(stream_) != cudaSuccess || !Down(*count)) return 0;
    std::memcpy(unique, unique_down_, *count * sizeof *unique);
    std::memcpy(number, number_down_, n_ * sizeof *number);
    return *count;
  }

  bool Copy(size_t count) override {
    cudaMemcpyAsync(keys_, up_, n_ * sizeof *keys_, cudaMemcpyHostToDevice, stream_);
    return Down(count);
  }

 private:
  bool Down(size_t count) {
    cudaMemcpyAsync(unique_down_, unique_, count * sizeof *unique_, cudaMemcpyDeviceToHost,
                    stream_);
    cudaMemcpyAsync(number_down_, number_, n_ * sizeof *number_, cudaMemcpyDeviceToHost, stream_);
    return cudaStreamSynchronize(stream_) == cudaSuccess && cudaGetLastError() == cudaSuccess;
  }

  const uint32_t n_;
  cudaStream_t stream_ = nullptr;
  char *device_ = nullptr, *pinned_ = nullptr, *scratch_ = nullptr;
  size_t sort_bytes_ = 0, scan_bytes_ = 0;
  uint64_t *keys_ = nullptr, *sorted_ = nullptr, *unique_ = nullptr;
  uint32_t *first_ = nullptr, *position_ = nullptr, *flag_ = nullptr, *rank_ = nullptr;
  uint32_t *number_ = nullptr, *count_ = nullptr;
  uint64_t *up_ = nullptr, *unique_down_ = nullptr;
  uint32_t* number_down_ = nullptr;
};

}  // namespace

std::unique_ptr<GpuDedup> GpuDedup::Create(size_t n) {
  if (n == 0 || n > UINT32_MAX / 2 || cudaSetDevice(0) != cudaSuccess) return nullptr;
  auto dedup = std::make_unique<CubDedup>(n);
  if (!dedup->Prepare()) return nullptr;
  return dedup;
}

}  // namespace sluice::bench
