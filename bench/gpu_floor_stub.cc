#include "bench/gpu_floor.h"

namespace sluice::bench {

absl::StatusOr<std::unique_ptr<GpuFloor>> GpuFloor::Create(const Shape&, MatmulPrecision) {
  return absl::UnimplementedError("built without CUDA");
}

}  // namespace sluice::bench
