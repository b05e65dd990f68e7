// The CUDA backend of wide_deep in a build without the toolkit.
#include "model/net/cuda/cuda_device.h"
#include "model/wide_deep/cuda/cuda_net.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<DenseNet>> CreateCudaNet(const WideDeepShape&, const NetOptions&) {
  return NotBuiltWithCuda();
}

}  // namespace sluice
