// A CUDA error as absl::Status, naming the call.
//
// Thread safety: safe.
#pragma once

#include <driver_types.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"

namespace sluice::cuda {

// RESOURCE_EXHAUSTED when memory is out, INTERNAL otherwise: "cudaMemcpyAsync: an illegal memory
// access was encountered (cudaErrorIllegalAddress)". `call`: its text; the arguments are dropped.
// The error is taken from the runtime: the next call's is its own.
absl::Status CudaStatus(cudaError_t error, absl::string_view call);

}  // namespace sluice::cuda

#define SLUICE_RETURN_IF_CUDA_ERROR(call) \
  SLUICE_RETURN_IF_ERROR(::sluice::cuda::CudaStatus(call, #call))
