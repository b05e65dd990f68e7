// Chooses the backend of a wide_deep network.
#include <utility>

#include "absl/strings/str_cat.h"
#include "model/model.h"
#include "model/wide_deep/cpu/wide_deep_net.h"
#include "model/wide_deep/cuda/cuda_net.h"
#include "model/wide_deep/wide_deep_spec.h"

namespace sluice {

// The list of models only calls this with a spec that WideDeepSpec::Create made: the cast is safe.
absl::StatusOr<std::unique_ptr<DenseNet>> CreateWideDeepNet(const ModelSpec& spec,
                                                            const NetOptions& options) {
  WideDeepShape shape = static_cast<const WideDeepSpec&>(spec).shape();
  if (options.device.kind == ComputeDevice::kCuda) return CreateCudaNet(shape, options);
  switch (options.precision) {
    case MatmulPrecision::kJob:
      break;
    case MatmulPrecision::kF32:
      shape.bf16 = false;
      break;
    case MatmulPrecision::kBf16:
      shape.bf16 = true;
      break;
    case MatmulPrecision::kTf32:
    case MatmulPrecision::kFp16:
      return absl::InvalidArgumentError(
          absl::StrCat("matmul precision ", NameOf(options.precision),
                       " needs a CUDA device; on the CPU use f32 or bf16"));
  }
  return WideDeepNet::Create(std::move(shape), options.threads, options.max_batch);
}

}  // namespace sluice
