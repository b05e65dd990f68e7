// The elementwise loops under the update rules and gradient sums.
//
// They are compiled once for each instruction set (common/base/instruction_sets.h).
// Arrays need no alignment and must not overlap.
//
// Invariants: every set gives the same bits, and the result of an element depends neither on its
// position nor on n. So a table has the same values on any CPU, however it is cut into shards.
// To that end the loops use only operations that IEEE 754 rounds correctly (no reciprocal
// estimates) and are compiled without contraction to fused multiply-add.
//
// Limits: on arrays larger than the caches, memory bounds all loops, at 4 bytes x (arrays read +
// arrays written) per parameter: 12, and 8 for each float of state. Stores that bypass the cache
// would save nothing: arrays are updated in place, so their lines are read anyway.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>

#include "common/base/instruction_sets.h"
#include "common/optimizer/rule_formulas.h"

namespace sluice {

// A float at any address, because a gradient is read where it was received.
using UnalignedFloat [[gnu::aligned(1), gnu::may_alias]] = float;

// The loops of one instruction set. Weights w and state are updated in place; g is the gradient;
// all arrays are [n].
struct Kernels {
  const char* name;
  // Makes an update by the rule of `step`. state: as many arrays as the rule has floats of state.
  // Returns false if a new value is NaN or infinite; all n are updated even so. A float of state
  // that does not show it is found in the weight (RuleBase::kSilentState).
  bool (*update)(const RuleStep& step, size_t n, const UnalignedFloat* g, float* w,
                 float* const* state);
  // sum += weight * g, in double.
  void (*add_scaled)(double weight, size_t n, const UnalignedFloat* g, double* sum);
  // mean = sum / total, rounded once. `mean` may be an array that was added before.
  void (*divide)(double total, size_t n, const double* sum, float* mean);
  // Whether no value is NaN or infinite.
  bool (*all_finite)(size_t n, const UnalignedFloat* values);
};

const Kernels& KernelsFor(InstructionSet set);
inline const Kernels& BestKernels() { return KernelsFor(BestInstructionSet()); }

namespace internal {
extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
}  // namespace internal

}  // namespace sluice
