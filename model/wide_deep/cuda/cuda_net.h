// Makes the CUDA backend of wide_deep. This header is the seam between the model and the CUDA code;
// a build without the toolkit links a stub behind it.
//
// Thread safety:
//   as DenseNet.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "model/net/dense_net.h"
#include "model/net/net_options.h"
#include "model/wide_deep/shape/wide_deep_shape.h"

namespace sluice {

// INVALID_ARGUMENT for an impossible shape or option; UNIMPLEMENTED in a build without CUDA;
// FAILED_PRECONDITION without a driver; NOT_FOUND without the device or cuBLAS; RESOURCE_EXHAUSTED
// if options.max_batch does not fit in options.device_memory_fraction.
// REQUIRES: the shape has at most one sparse table.
absl::StatusOr<std::unique_ptr<DenseNet>> CreateCudaNet(const WideDeepShape& shape,
                                                        const NetOptions& options);

}  // namespace sluice
