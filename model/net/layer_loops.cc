#include "model/net/layer_loops.h"

#include "model/net/dense_net.h"

namespace sluice {

bool HasBf16Instructions() {
#ifdef SLUICE_X86_LOOPS
  return __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

const LayerLoops& BestLayerLoops() {
#ifdef SLUICE_X86_LOOPS
  // The builtin also checks that the operating system saves these registers.
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (avx512) return internal::kAvx512LayerLoops;
#endif
  return internal::kPortableLayerLoops;
}

}  // namespace sluice
