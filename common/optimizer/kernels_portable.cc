// The loops of kernel_loops.h, compiled without flags for an instruction set (CMakeLists.txt).
#include "common/optimizer/kernel_loops.h"

namespace sluice::internal {
const Kernels kPortableKernels = SLUICE_KERNELS("portable");
}  // namespace sluice::internal
