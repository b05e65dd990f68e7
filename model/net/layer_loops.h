// The elementwise loops between the matrix products, with one version for each instruction set.
//
// Invariants: every version computes each element and each sum by the same operations in the same
// order (the files are compiled without fused multiply-add). Versions differ only in speed.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/instruction_sets.h"

namespace sluice {

struct LayerLoops {
  const char* name;  // "portable", "avx512"
  // z = ReLU(z + bias), keeping NaN.
  void (*bias_relu)(const float* bias, float* z, size_t n);
  // gradient = h > 0 ? gradient * scale : 0. This is backward through dropout and ReLU: a unit that
  // is not positive was dropped or cut off by ReLU.
  void (*mask)(const float* h, float scale, float* gradient, size_t n);
  // to = h > 0 ? w * g * scale : 0.
  void (*outer_mask)(const float* h, const float* w, float g, float scale, float* to, size_t n);
  // sum(a[i] * b[i]), in 16 partial sums.
  float (*dot)(const float* a, const float* b, size_t n);
  // sums += factor * values, in double.
  void (*add_scaled)(const float* values, double factor, double* sums, size_t n);
  // out = float(sums * scale).
  void (*round)(const double* sums, double scale, float* out, size_t n);
  // sums += values.
  void (*add)(const float* values, double* sums, size_t n);
  // Rounds to nearest even; NaN stays NaN.
  void (*to_bf16)(const float* values, uint16_t* to, size_t n);
};

const LayerLoops& LayerLoopsFor(InstructionSet set);
inline const LayerLoops& BestLayerLoops() { return LayerLoopsFor(BestInstructionSet()); }

namespace internal {
extern const LayerLoops kPortableLayerLoops;
extern const LayerLoops kAvx512LayerLoops;  // x86-64 only
}  // namespace internal

}  // namespace sluice
