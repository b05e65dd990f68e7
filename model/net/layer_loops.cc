#include "model/net/layer_loops.h"

namespace sluice {

const LayerLoops& LayerLoopsFor(InstructionSet set) {
#ifdef __x86_64__
  if (set == InstructionSet::kAvx512) return internal::kAvx512LayerLoops;
#endif
  return internal::kPortableLayerLoops;
}

}  // namespace sluice
