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
  // Backward through dropout and ReLU, where a unit that is not positive was dropped or cut off.
  // For each of the rows of n: z = h > 0 ? z * scale : 0; sums += z, in double.
  void (*mask)(const float* h, float scale, float* z, size_t rows, size_t n, double* sums);
  // The same behind an output layer with one unit, whose weights are w [n]; g [rows] is its
  // gradient. For each row: z = h > 0 ? w * g * scale : 0; weight_sums += h * g; sums += z.
  void (*outer)(const float* h, const float* w, const float* g, float scale, float* z, size_t rows,
                size_t n, double* weight_sums, double* sums);
  // sum(a[i] * b[i]), in 16 partial sums.
  float (*dot)(const float* a, const float* b, size_t n);
  // out = float(sums * scale).
  void (*round)(const double* sums, double scale, float* out, size_t n);
  // The same; then sums = 0.
  void (*round_and_clear)(double* sums, double scale, float* out, size_t n);
  // sums = (sums + a) + b, where `fresh` sums count as 0. A null `b` adds nothing.
  void (*add)(bool fresh, const float* a, const float* b, double* sums, size_t n);
  // out = float(((sums + a) + b) * scale). Null `sums` count as 0, and a null `b` adds nothing.
  void (*add_and_round)(const double* sums, const float* a, const float* b, double scale,
                        float* out, size_t n);
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
