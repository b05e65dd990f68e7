#include "common/collective/gloo_engine.h"

namespace sluice {

absl::StatusOr<std::unique_ptr<CollectiveEngine>> MakeGlooEngine(const CollectiveOptions&) {
  return absl::UnimplementedError(
      "this build has no collective operations between hosts: install libgloo-dev, and configure "
      "with -DSLUICE_WITH_GLOO=ON");
}

}  // namespace sluice
