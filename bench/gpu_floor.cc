#include "bench/gpu_floor.h"

#include <cuda_runtime_api.h>

#include <algorithm>

#include "bench/suite.h"
#include "model/net/cuda/cuda_device.h"
#include "model/wide_deep/cuda/cuda_ops.h"

namespace sluice::bench {
namespace {

using cuda::Element;
using cuda::Gemm;
using cuda::NetPlan;

// The byte pattern of the operands, a small number in every format (f32 and bf16 0.011, fp16 1.06).
// Zeros would be multiplied faster than a network's numbers.
constexpr int kOperandByte = 0x3c;

class CudaFloor : public GpuFloor {
 public:
  CudaFloor(const Shape& shape, MatmulPrecision precision, size_t device_bytes)
      : shape_(shape),
        element_(precision == MatmulPrecision::kBf16   ? Element::kBf16
                 : precision == MatmulPrecision::kFp16 ? Element::kFp16
                                                       : Element::kF32),
        exact_(precision == MatmulPrecision::kF32),
        memory_("cuda:0", device_bytes),
        a_(&memory_, "operands"),
        b_(&memory_, "operands"),
        c_(&memory_, "products"),
        copied_(&memory_, "copies") {}

  absl::Status Prepare() {
    size_t widest = 0, largest = 0;
    for (size_t l = 0; l + 1 < shape_.widths.size(); ++l) {
      const size_t in = NetPlan::Ld(shape_.widths[l]), out = NetPlan::Ld(shape_.widths[l + 1]);
      widest = std::max({widest, in, out});
      largest = std::max(largest, in * out);
    }
    const size_t bytes = 4 * std::max(largest, widest * shape_.batch);
    const size_t copied = std::max(shape_.bytes_up, shape_.bytes_down);
    for (cuda::DeviceBlock* block : {&a_, &b_, &c_}) {
      SLUICE_RETURN_IF_ERROR(block->Reserve(bytes));
      SLUICE_RETURN_IF_CUDA_ERROR(cudaMemset(block->data(), kOperandByte, bytes));
    }
    // cudaMemset may return early, and our stream does not wait for it.
    SLUICE_RETURN_IF_CUDA_ERROR(cudaDeviceSynchronize());
    SLUICE_RETURN_IF_ERROR(copied_.Reserve(copied));
    SLUICE_RETURN_IF_ERROR(pinned_.Reserve(copied));
    SLUICE_RETURN_IF_ERROR(stream_.Create());
    SLUICE_ASSIGN_OR_RETURN(ops_, cuda::CudaOps::Create(&stream_, &memory_));
    return absl::OkStatus();
  }

  double Measure(double seconds) override {
    Once();
    const double start = Now();
    size_t examples = 0;
    do {
      if (!Once()) return 0;
      examples += shape_.batch;
    } while (Now() - start < seconds);
    return examples / (Now() - start);
  }

 private:
  void Multiply(bool a_transposed, bool b_transposed, size_t m, size_t n, size_t k) {
    Gemm gemm;
    gemm.a_transposed = a_transposed, gemm.b_transposed = b_transposed;
    gemm.m = m, gemm.n = n, gemm.k = k;
    // cuBLAS is fastest with aligned rows.
    gemm.a = a_.data(), gemm.lda = NetPlan::Ld(a_transposed ? k : m);
    gemm.b = b_.data(), gemm.ldb = NetPlan::Ld(b_transposed ? n : k);
    gemm.c = reinterpret_cast<float*>(c_.data()), gemm.ldc = NetPlan::Ld(m);
    gemm.element = element_, gemm.exact = exact_;
    ops_->Multiply(gemm);
  }

  bool Once() {
    if (cudaMemcpyAsync(copied_.data(), pinned_.data(), shape_.bytes_up, cudaMemcpyHostToDevice,
                        stream_.get()) != cudaSuccess) {
      return false;
    }
    for (size_t l = 0; l + 1 < shape_.widths.size(); ++l) {
      const size_t in = shape_.widths[l], out = shape_.widths[l + 1], n = shape_.batch;
      const size_t inputs = l == 0 ? shape_.embeddings : in;
      Multiply(false, false, out, n, in);                     // [n, in] x [in, out]
      Multiply(false, true, out, in, n);                      // [in, n] x [n, out]
      if (inputs > 0) Multiply(true, false, inputs, n, out);  // [n, out] x [out, inputs]
    }
    if (cudaMemcpyAsync(pinned_.data(), copied_.data(), shape_.bytes_down, cudaMemcpyDeviceToHost,
                        stream_.get()) != cudaSuccess) {
      return false;
    }
    return ops_->TakeStatus().ok() && cudaStreamSynchronize(stream_.get()) == cudaSuccess;
  }

  const Shape shape_;
  const Element element_;
  const bool exact_;
  cuda::DeviceMemory memory_;
  cuda::DeviceBlock a_, b_, c_, copied_;
  cuda::PinnedBlock pinned_;
  cuda::Stream stream_;
  std::unique_ptr<cuda::CudaOps> ops_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuFloor>> GpuFloor::Create(const Shape& shape,
                                                           MatmulPrecision precision) {
  SLUICE_ASSIGN_OR_RETURN(const CudaDeviceInfo device, OpenCudaDevice(0));
  auto floor = std::make_unique<CudaFloor>(shape, precision, device.total_bytes);
  SLUICE_RETURN_IF_ERROR(floor->Prepare());
  return floor;
}

}  // namespace sluice::bench
