#include "common/collective/reduce_loops.h"

namespace sluice {

const ReduceLoops& BestReduceLoops() {
#ifdef SLUICE_X86_LOOPS
  // The builtin also checks that the operating system saves these registers.
  static const bool avx512 =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512bw");
  if (avx512) return internal::kAvx512ReduceLoops;
#endif
  return internal::kPortableReduceLoops;
}

}  // namespace sluice
