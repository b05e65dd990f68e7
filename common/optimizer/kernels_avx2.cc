#include "common/optimizer/kernel_loops.h"

namespace sluice::internal {
const Kernels kAvx2Kernels = SLUICE_KERNELS("avx2");
}  // namespace sluice::internal
