// The loops of kernel_loops.h, compiled with the flags for AVX2 and FMA (CMakeLists.txt).
#include "common/optimizer/kernel_loops.h"

namespace sluice::internal {
const Kernels kAvx2Kernels = SLUICE_KERNELS("avx2");
}  // namespace sluice::internal
