#include "common/collective/nccl_engine.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeNcclEngine(
    const CollectiveOptions&, std::unique_ptr<CollectiveEngine>) {
  return absl::UnimplementedError(
      "this build has no engine nccl: build it where the CUDA toolkit and NCCL's header nccl.h are "
      "installed (-DSLUICE_WITH_CUDA=ON), or choose another engine");
}

}  // namespace sluice
