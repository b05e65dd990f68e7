// Replaces cublas_library.cc on the simulated devices. Multiplies matrices in double, and refuses
// the arguments that cuBLAS refuses.
#include <cuda_runtime_api.h>

#include "absl/strings/str_cat.h"
#include "model/net/cuda/cublas_library.h"
#include "tests/model/wide_deep/cuda/host_ops.h"
#include "tests/model/wide_deep/cuda/simulated/world.h"

struct cublasContext {
  cudaStream_t stream = nullptr;
  void* workspace = nullptr;
};

namespace sluice::cuda {

namespace emulated {
bool PutOnStream(cudaStream_t stream, std::function<void()> run);
}

namespace {

cublasStatus_t Create(cublasHandle_t* handle) {
  *handle = new cublasContext;
  ++simulated::World::Get().handles();
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t Destroy(cublasHandle_t handle) {
  --simulated::World::Get().handles();
  return delete handle, CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t SetStream(cublasHandle_t handle, cudaStream_t stream) {
  handle->stream = stream;
  handle->workspace = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t SetWorkspace(cublasHandle_t handle, void* workspace, size_t) {
  handle->workspace = workspace;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t SetMathMode(cublasHandle_t, cublasMath_t) { return CUBLAS_STATUS_SUCCESS; }
const char* StatusName(cublasStatus_t) { return "refused by the simulated cuBLAS"; }

bool ElementOf(cudaDataType type, cublasComputeType_t compute, Element* element) {
  const bool half = compute == CUBLAS_COMPUTE_32F;
  switch (type) {
    case CUDA_R_32F:
      *element = Element::kF32;
      return compute == CUBLAS_COMPUTE_32F_PEDANTIC || compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    case CUDA_R_16BF:
      return *element = Element::kBf16, half;
    case CUDA_R_16F:
      return *element = Element::kFp16, half;
    default:
      return false;
  }
}

// True when a column-major matrix lies wholly in device memory.
bool Lies(const void* at, int rows, int columns, int ld, size_t bytes) {
  if (ld < std::max(1, rows)) return false;
  if (rows == 0 || columns == 0) return true;
  const size_t elements = static_cast<size_t>(ld) * (columns - 1) + rows;
  // A handle does not know its device, so any device will do.
  for (int device = 0; device < simulated::World::Get().devices(); ++device) {
    if (simulated::World::Get().memory().Holds(simulated::MemoryKind::kDevice, device, at,
                                               elements * bytes)) {
      return true;
    }
  }
  return false;
}

cublasStatus_t GemmEx(cublasHandle_t handle, cublasOperation_t a_op, cublasOperation_t b_op, int m,
                      int n, int k, const void* alpha, const void* a, cudaDataType a_type, int lda,
                      const void* b, cudaDataType b_type, int ldb, const void* beta, void* c,
                      cudaDataType c_type, int ldc, cublasComputeType_t compute, cublasGemmAlgo_t) {
  Gemm gemm;
  gemm.a_transposed = a_op != CUBLAS_OP_N, gemm.b_transposed = b_op != CUBLAS_OP_N;
  gemm.m = m, gemm.n = n, gemm.k = k;
  gemm.a = a, gemm.lda = lda, gemm.b = b, gemm.ldb = ldb;
  gemm.c = static_cast<float*>(c), gemm.ldc = ldc;
  if (m < 0 || n < 0 || k < 0 || c_type != CUDA_R_32F || a_type != b_type ||
      !ElementOf(a_type, compute, &gemm.element)) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const size_t bytes = BytesOf(gemm.element);
  if (handle->workspace == nullptr || *static_cast<const float*>(alpha) != 1 ||
      *static_cast<const float*>(beta) != 0 ||
      !Lies(a, gemm.a_transposed ? k : m, gemm.a_transposed ? m : k, lda, bytes) ||
      !Lies(b, gemm.b_transposed ? n : k, gemm.b_transposed ? k : n, ldb, bytes) ||
      !Lies(c, m, n, ldc, sizeof(float))) {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (simulated::World::Get().Fails()) return CUBLAS_STATUS_ALLOC_FAILED;  // later calls work
  if (emulated::PutOnStream(handle->stream, [gemm] { HostOps().Multiply(gemm); }))
    return CUBLAS_STATUS_SUCCESS;
  (void)cudaGetLastError();
  return CUBLAS_STATUS_EXECUTION_FAILED;
}

}  // namespace

const char* CublasFileName() { return "the simulated cuBLAS"; }

absl::StatusOr<const CublasLibrary*> CublasLibrary::Get() {
  static const auto* library =
      new CublasLibrary{Create, Destroy, SetStream, SetWorkspace, SetMathMode, GemmEx, StatusName};
  return library;
}

absl::Status CublasLibrary::Check(cublasStatus_t status, absl::string_view call) const {
  if (status == CUBLAS_STATUS_SUCCESS) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(call, ": ", status_name(status)));
}

}  // namespace sluice::cuda
