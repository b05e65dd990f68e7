#include "common/optimizer/kernels.h"

namespace sluice {

const Kernels& KernelsFor(InstructionSet set) {
// Builds for other processors leave out the files of these sets (sluice_loop_files in cmake).
#ifdef __x86_64__
  if (set == InstructionSet::kAvx512) return internal::kAvx512Kernels;
  if (set == InstructionSet::kAvx2) return internal::kAvx2Kernels;
#endif
  return internal::kPortableKernels;
}

}  // namespace sluice
