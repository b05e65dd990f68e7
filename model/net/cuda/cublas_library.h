// Loads the few functions of cuBLAS that the network calls when a CUDA device is first needed.
//
// cuBLAS is not linked, because a program linked to it would not start on a machine without it.
// With cublasLt it takes several hundred megabytes, which a machine without a GPU does not need.
// The CUDA runtime itself is linked statically and looks for the driver when it is called.
//
// Thread safety: safe from any thread.
#pragma once

#include <cublas_v2.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace sluice::cuda {

struct CublasLibrary {
  cublasStatus_t (*create)(cublasHandle_t*);
  cublasStatus_t (*destroy)(cublasHandle_t);
  cublasStatus_t (*set_stream)(cublasHandle_t, cudaStream_t);
  cublasStatus_t (*set_workspace)(cublasHandle_t, void*, size_t);
  cublasStatus_t (*set_math_mode)(cublasHandle_t, cublasMath_t);
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int,
                         const void*, const void*, cudaDataType, int, const void*, cudaDataType,
                         int, const void*, void*, cudaDataType, int, cublasComputeType_t,
                         cublasGemmAlgo_t);
  const char* (*status_name)(cublasStatus_t);

  // Loaded once and kept. NOT_FOUND names the missing library and where it was searched for.
  static absl::StatusOr<const CublasLibrary*> Get();
  absl::Status Check(cublasStatus_t status, absl::string_view call) const;
};

// The library's file name, of the same major version as the toolkit of this build.
const char* CublasFileName();

}  // namespace sluice::cuda
