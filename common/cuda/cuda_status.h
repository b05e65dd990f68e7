// Converts a CUDA error to an absl::Status that names the call.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <driver_types.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace sluice::cuda {

// RESOURCE_EXHAUSTED when memory has run out, INTERNAL otherwise: "cudaMemcpyAsync: an illegal
// memory access was encountered (cudaErrorIllegalAddress)". `call` is the text of the call, whose
// arguments are dropped. Clears the runtime's last error, so that the next call does not report it.
absl::Status CudaStatus(cudaError_t error, absl::string_view call);

}  // namespace sluice::cuda

#define SLUICE_RETURN_IF_CUDA_ERROR(call) \
  SLUICE_RETURN_IF_ERROR(::sluice::cuda::CudaStatus(call, #call))
