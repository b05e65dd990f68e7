// The loops of the reductions, with one version for each instruction set.
//
// Invariants: every version computes each element by the same operations in the same order, without
// fused multiply-add, so the bits do not depend on the processor. NaN stays NaN in all of them.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/instruction_sets.h"

namespace sluice {

struct ReduceLoops {
  const char* name;  // "portable", "avx512"
  // values *= factor.
  void (*multiply)(float factor, float* values, size_t n);
  // sums = factor * values.
  void (*scale)(float factor, const float* values, float* sums, size_t n);
  // sums += factor * values.
  void (*add_scaled)(float factor, const float* values, float* sums, size_t n);
  // sums += values.
  void (*add)(const float* values, float* sums, size_t n);
  // sums /= total.
  void (*divide)(float total, float* sums, size_t n);
  // smallest = min(smallest, values), and the like.
  void (*min)(const float* values, float* smallest, size_t n);
  void (*max)(const float* values, float* largest, size_t n);
  // halves = values, rounded to bfloat16 (RoundToBf16).
  void (*round)(const float* values, uint16_t* halves, size_t n);
  // values = halves.
  void (*widen)(const uint16_t* halves, float* values, size_t n);
  // scale and add_scaled of values in bfloat16.
  void (*scale_halves)(float factor, const uint16_t* halves, float* sums, size_t n);
  void (*add_scaled_halves)(float factor, const uint16_t* halves, float* sums, size_t n);
};

const ReduceLoops& ReduceLoopsFor(InstructionSet set);
inline const ReduceLoops& BestReduceLoops() { return ReduceLoopsFor(BestInstructionSet()); }

namespace internal {
extern const ReduceLoops kPortableReduceLoops;
extern const ReduceLoops kAvx512ReduceLoops;  // x86-64 only
}  // namespace internal

}  // namespace sluice
