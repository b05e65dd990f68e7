// The elementwise loops under update rules and gradient sums, compiled once for each instruction
// set and chosen when the process starts.
//
// Invariant: every set gives the same bits, and an element's result depends neither on its position
// nor on n. The loops use only operations that IEEE 754 rounds correctly (no reciprocal estimates)
// and are compiled without contraction to fused multiply-add, so that a table has the same values
// however it is cut into shards, and on whatever CPU. Arrays need no alignment and do not overlap.
//
// Limits: on arrays beyond the caches all are bound by memory, 4 bytes x (arrays read + arrays
// written) a parameter: SGD 12, Momentum and AdaGrad 20, Adam and FTRL 28. Arrays are updated in
// place, so stores that bypass the cache would save nothing: their lines have been read anyway.
// Thread safety: free functions without state.
#pragma once

#include <cstddef>
#include <vector>

#include "common/optimizer/rule_formulas.h"

namespace sluice {

// At any address: a gradient is read where it was received.
using UnalignedFloat [[gnu::aligned(1), gnu::may_alias]] = float;

// Weights w and state are updated in place; g is the gradient; all are [n]. Formulas:
// rule_formulas.h.
struct Kernels {
  const char* name;
  void (*sgd)(const SgdStep& s, size_t n, const UnalignedFloat* g, float* w);
  void (*momentum)(const MomentumStep& s, size_t n, const UnalignedFloat* g, float* w, float* buf);
  void (*adam)(const AdamStep& s, size_t n, const UnalignedFloat* g, float* w, float* m, float* v);
  void (*adagrad)(const AdagradStep& s, size_t n, const UnalignedFloat* g, float* w, float* a);
  void (*ftrl)(const FtrlStep& s, size_t n, const UnalignedFloat* g, float* w, float* z,
               float* squares);
  // sum += weight * g, in double.
  void (*add_scaled)(double weight, size_t n, const UnalignedFloat* g, double* sum);
  // mean = sum / total, rounded once. mean may be where a gradient was added from.
  void (*divide)(double total, size_t n, const double* sum, float* mean);
};

// The fastest that this CPU has, or what UseKernelsForTest set.
const Kernels& BestKernels();

// All that this CPU has, the portable set first.
std::vector<const Kernels*> SupportedKernelsForTest();
// For rules created from now on; null: the fastest again. Not while other threads create rules.
void UseKernelsForTest(const Kernels* kernels);

namespace internal {
extern const Kernels kPortableKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
}  // namespace internal

}  // namespace sluice
