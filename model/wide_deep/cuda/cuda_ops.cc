#include "model/wide_deep/cuda/cuda_ops.h"

#include "absl/strings/str_cat.h"
#include "model/wide_deep/cuda/kernels.h"

namespace sluice::cuda {
namespace {

// The size that NVIDIA recommends for Hopper; older devices need less.
constexpr size_t kWorkspace = size_t{32} << 20;

cudaDataType TypeOf(Element element) {
  switch (element) {
    case Element::kF32:
      return CUDA_R_32F;
    case Element::kBf16:
      return CUDA_R_16BF;
    case Element::kFp16:
      return CUDA_R_16F;
  }
  return CUDA_R_32F;
}

cublasComputeType_t ComputeTypeOf(const Gemm& gemm) {
  if (gemm.element != Element::kF32) return CUBLAS_COMPUTE_32F;
  // PEDANTIC keeps cuBLAS from using TF32 on its own.
  return gemm.exact ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F_FAST_TF32;
}

cublasOperation_t OperationOf(bool transposed) { return transposed ? CUBLAS_OP_T : CUBLAS_OP_N; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaOps>> CudaOps::Create(const Stream* compute,
                                                         DeviceMemory* memory) {
  SLUICE_ASSIGN_OR_RETURN(const CublasLibrary* const cublas, CublasLibrary::Get());
  std::unique_ptr<CudaOps> ops = WithoutProducts(compute);
  ops->cublas_ = cublas;
  ops->workspace_ = std::make_unique<DeviceBlock>(memory, "cuBLAS's workspace");
  SLUICE_RETURN_IF_ERROR(ops->workspace_->Reserve(kWorkspace));
  SLUICE_RETURN_IF_ERROR(cublas->Check(cublas->create(&ops->handle_), "cublasCreate"));
  // set_stream resets the workspace, so set_workspace must come after it.
  SLUICE_RETURN_IF_ERROR(
      cublas->Check(cublas->set_stream(ops->handle_, compute->get()), "cublasSetStream"));
  SLUICE_RETURN_IF_ERROR(
      cublas->Check(cublas->set_workspace(ops->handle_, ops->workspace_->data(), kWorkspace),
                    "cublasSetWorkspace"));
  // Partial sums of halves stay in f32.
  SLUICE_RETURN_IF_ERROR(cublas->Check(
      cublas->set_math_mode(ops->handle_, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION),
      "cublasSetMathMode"));
  return ops;
}

std::unique_ptr<CudaOps> CudaOps::WithoutProducts(const Stream* stream) {
  return std::unique_ptr<CudaOps>(new CudaOps(stream));
}

CudaOps::~CudaOps() {
  if (handle_ != nullptr) (void)cublas_->destroy(handle_);
}

absl::Status CudaOps::TakeStatus() {
  // Errors are kept until here, since many calls make a step and the first failure is the one that
  // matters.
  const absl::Status status = status_;
  status_ = absl::OkStatus();
  return status;
}

void CudaOps::KeepLaunch(const char* kernel) { Keep(CudaStatus(cudaGetLastError(), kernel)); }

void CudaOps::Zero(void* to, size_t bytes) {
  Keep(CudaStatus(cudaMemsetAsync(to, 0, bytes, compute_.get()), "cudaMemsetAsync"));
}

void CudaOps::Multiply(const Gemm& gemm) {
  if (cublas_ == nullptr) return Keep(absl::InternalError("a product on a stream without cuBLAS"));
  const float one = 1.0f, zero = 0.0f;
  const cudaDataType type = TypeOf(gemm.element);
  const absl::Status status = cublas_->Check(
      cublas_->gemm(handle_, OperationOf(gemm.a_transposed), OperationOf(gemm.b_transposed), gemm.m,
                    gemm.n, gemm.k, &one, gemm.a, type, gemm.lda, gemm.b, type, gemm.ldb, &zero,
                    gemm.c, CUDA_R_32F, gemm.ldc, ComputeTypeOf(gemm), CUBLAS_GEMM_DEFAULT),
      "cublasGemmEx");
  if (!status.ok()) {
    Keep(
        absl::Status(status.code(), absl::StrCat(status.message(), " for a product [", gemm.m, ", ",
                                                 gemm.k, "] x [", gemm.k, ", ", gemm.n, "]")));
  }
}

void CudaOps::ExpandCells(const BatchView& batch, uint32_t num_slots, uint32_t rows,
                          uint32_t* cells) {
  on_device::LaunchExpandCells(compute_.get(), batch, num_slots, rows, cells);
  KeepLaunch("ExpandCells");
}

void CudaOps::SortPass(const SortArgs& args) {
  on_device::LaunchSortPass(compute_.get(), args);
  KeepLaunch("SortPass");
}

void CudaOps::FindRows(const StepHeader* header, const uint32_t* sorted_rows, uint32_t rows,
                       uint32_t* row_begin) {
  on_device::LaunchFindRows(compute_.get(), header, sorted_rows, rows, row_begin);
  KeepLaunch("FindRows");
}

void CudaOps::ConvertWeights(Element element, const float* weights, uint32_t in, uint32_t out,
                             uint32_t ld, void* to, uint32_t* overflow) {
  on_device::LaunchConvertWeights(compute_.get(), element, weights, in, out, ld, to, overflow);
  KeepLaunch("ConvertWeights");
}

void CudaOps::Gather(Element element, const NetView& net, const BatchView& batch, uint32_t rows,
                     uint32_t ld, void* to, uint32_t* overflow) {
  on_device::LaunchGather(compute_.get(), element, net, batch, rows, ld, to, overflow);
  KeepLaunch("Gather");
}

void CudaOps::BiasRelu(Element element, const BiasReluArgs& args) {
  on_device::LaunchBiasRelu(compute_.get(), element, args);
  KeepLaunch("BiasRelu");
}

void CudaOps::Logits(Element element, const NetView& net, const BatchView& batch,
                     const LogitArgs& args) {
  on_device::LaunchLogits(compute_.get(), element, net, batch, args);
  KeepLaunch("Logits");
}

void CudaOps::OutputBackwardSums(Element element, const BackwardArgs& args) {
  on_device::LaunchOutputBackward(compute_.get(), element, args);
  KeepLaunch("OutputBackward");
}

void CudaOps::HiddenBackwardSums(Element element, const BackwardArgs& args) {
  on_device::LaunchHiddenBackward(compute_.get(), element, args);
  KeepLaunch("HiddenBackward");
}

void CudaOps::WideSums(const WideArgs& args) {
  on_device::LaunchWideSums(compute_.get(), args);
  KeepLaunch("WideSums");
}

void CudaOps::RowGradients(const NetView& net, const BatchView& batch, const RowGradientView& view,
                           uint32_t keys, uint32_t rows) {
  on_device::LaunchRowGradients(compute_.get(), net, batch, view, keys, rows);
  KeepLaunch("RowGradients");
}

}  // namespace sluice::cuda
