// The loops of kernel_loops.h, compiled with the flags for AVX-512 (CMakeLists.txt).
#include "common/optimizer/kernel_loops.h"

namespace sluice::internal {
const Kernels kAvx512Kernels = SLUICE_KERNELS("avx512");
}  // namespace sluice::internal
