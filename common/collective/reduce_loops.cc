#include "common/collective/reduce_loops.h"

namespace sluice {

const ReduceLoops& ReduceLoopsFor(InstructionSet set) {
#ifdef __x86_64__
  if (set == InstructionSet::kAvx512) return internal::kAvx512ReduceLoops;
#endif
  return internal::kPortableReduceLoops;
}

}  // namespace sluice
