#include "common/optimizer/kernel_loops.h"

namespace sluice::internal {
const Kernels kPortableKernels = SLUICE_KERNELS("portable");
}  // namespace sluice::internal
