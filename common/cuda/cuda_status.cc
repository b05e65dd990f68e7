#include "common/cuda/cuda_status.h"

#include <cuda_runtime_api.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace sluice::cuda {

absl::Status CudaStatus(cudaError_t error, absl::string_view call) {
  if (error == cudaSuccess) return absl::OkStatus();
  // The runtime would return this error from the next cudaGetLastError, which asks about another
  // call.
  (void)cudaGetLastError();
  const std::string text =
      absl::StrCat(call.substr(0, call.find('(')), ": ", cudaGetErrorString(error), " (",
                   cudaGetErrorName(error), ")");
  return error == cudaErrorMemoryAllocation ? absl::ResourceExhaustedError(text)
                                            : absl::InternalError(text);
}

}  // namespace sluice::cuda
