// The kernels of parameters that stay on a device, as functions of one element, row or lane.
//
// They write rows into slots, apply update rules, take and merge Geo's deltas, and sum the global
// norm of gradients. Rows are [n][dim] in copies and gradients, and [slots][dim] where they stay; a
// dense tensor is one row. The formulas are in common/optimizer/rule_formulas.h. Compiled without
// contraction, results equal the CPU's to the bit, except that the global norm has its own order of
// summation.
//
// Thread safety: free functions, safe from any thread. Each works on its own elements.
#pragma once

#include <cstdint>

#include "common/optimizer/rule_formulas.h"

namespace sluice::cuda {

SLUICE_HD inline uint64_t SlotOf(const uint32_t* slots, uint64_t i) {
  return slots == nullptr ? i : slots[i];
}

// Writes values to their slots.
struct FillArgs {
  const uint32_t* slots = nullptr;  // [n]; null: slot i is row i
  const float* values = nullptr;    // [n][dim]
  const uint32_t* fresh = nullptr;  // [n]; not 0: the optimizer state is reset to `initial`
  const float* initial = nullptr;   // [state_dim]
  uint64_t n = 0, dim = 0, state_dim = 0;
  float* local = nullptr;  // [slots][dim]
  float* base = nullptr;   // [slots][dim], or null
  float* state = nullptr;  // [slots][state_dim]
  SLUICE_HD uint64_t items() const { return n * (dim + state_dim); }
};

SLUICE_HD inline void FillItem(const FillArgs& a, uint64_t at) {
  const uint64_t i = at / (a.dim + a.state_dim), j = at - i * (a.dim + a.state_dim);
  const uint64_t slot = SlotOf(a.slots, i);
  if (j < a.dim) {
    const float value = a.values[i * a.dim + j];
    a.local[slot * a.dim + j] = value;
    if (a.base != nullptr) a.base[slot * a.dim + j] = value;
  } else if (a.fresh[i] != 0) {
    a.state[slot * a.state_dim + (j - a.dim)] = a.initial[j - a.dim];
  }
}

// delta = local - base.
struct DeltaArgs {
  const uint32_t* slots = nullptr;
  uint64_t n = 0, dim = 0;
  const float *local = nullptr, *base = nullptr;  // [slots][dim]
  float* delta = nullptr;                         // [n][dim]
  SLUICE_HD uint64_t items() const { return n * dim; }
};

SLUICE_HD inline void DeltaItem(const DeltaArgs& a, uint64_t at) {
  const uint64_t i = at / a.dim;
  const uint64_t there = SlotOf(a.slots, i) * a.dim + (at - i * a.dim);
  a.delta[at] = a.local[there] - a.base[there];
}

// base = server; local = server + (local - base - sent). In this order of operations local is
// exactly the server's value if nothing moved since the delta was taken.
struct MergeArgs {
  const uint32_t* slots = nullptr;
  uint64_t n = 0, dim = 0;
  const float *sent = nullptr, *server = nullptr;  // [n][dim]
  float *local = nullptr, *base = nullptr;         // [slots][dim]
  SLUICE_HD uint64_t items() const { return n * dim; }
};

SLUICE_HD inline void MergeItem(const MergeArgs& a, uint64_t at) {
  const uint64_t i = at / a.dim;
  const uint64_t there = SlotOf(a.slots, i) * a.dim + (at - i * a.dim);
  a.local[there] = a.server[at] + ((a.local[there] - a.base[there]) - a.sent[at]);
  a.base[there] = a.server[at];
}

// An update of a column group of n rows, or of a dense tensor (n = 1).
struct UpdateArgs {
  RuleStep step;
  const uint32_t* slots = nullptr;
  const float* gradient = nullptr;  // [n][stride]
  uint64_t n = 0, dim = 0;  // dim is the width of the group, which starts at `begin` of a row
  uint64_t stride = 0, begin = 0;
  uint64_t state_stride = 0, state_begin = 0;  // floats of a row's state; first one of the group
  const float* of_count = nullptr;  // [n][2]: RuleStep::of_count of each row; null: that of `step`
  float factor = 1;                 // 1 / loss scale
  const float* global = nullptr;    // [1]: factor of clipping by global norm, or null
  float clip_value = 0, clip_row_norm = 0;  // 0: none
  uint64_t clip_row = 0;                    // weights of a row for clip_row_norm
  float* scales = nullptr;  // [clip_rows()]: factors of clipping by row norm, or null
  float *local = nullptr, *state = nullptr;  // [slots][stride], [slots][state_stride]
  SLUICE_HD uint64_t items() const { return n * dim; }
  SLUICE_HD uint64_t clip_rows() const { return (n * dim + clip_row - 1) / clip_row; }
};

// Element `at` of [n][dim], after all clipping except that by row norm.
SLUICE_HD inline float GradientAt(const UpdateArgs& a, uint64_t at) {
  const uint64_t i = at / a.dim;
  float g = a.gradient[i * a.stride + a.begin + (at - i * a.dim)] * a.factor;
  if (a.global != nullptr) g *= *a.global;
  return a.clip_value > 0 ? formula::ClipValue(g, a.clip_value) : g;
}

struct GradientOfRow {
  const UpdateArgs& args;
  uint64_t first;
  SLUICE_HD float operator()(size_t i) const { return GradientAt(args, first + i); }
};

SLUICE_HD inline void ScaleOfRow(const UpdateArgs& a, uint64_t row) {
  const uint64_t first = row * a.clip_row, left = a.items() - first;
  const GradientOfRow gradient = {a, first};
  a.scales[row] = formula::ClipScale(
      formula::SquaredNorm(gradient, left < a.clip_row ? left : a.clip_row), a.clip_row_norm);
}

SLUICE_HD inline void UpdateItem(const UpdateArgs& a, uint64_t at) {
  const uint64_t i = at / a.dim, j = at - i * a.dim, slot = SlotOf(a.slots, i);
  float g = GradientAt(a, at);
  if (a.scales != nullptr) g *= a.scales[at / a.clip_row];
  RuleStep step = a.step;
  if (a.of_count != nullptr) {
    step.of_count[0] = a.of_count[2 * i];
    step.of_count[1] = a.of_count[2 * i + 1];
  }
  float* first = nullptr;
  if (a.state != nullptr) first = a.state + slot * a.state_stride + a.state_begin + j;
  float* second = a.state != nullptr ? first + a.dim : nullptr;
  formula::Update(step, g, a.local + slot * a.stride + a.begin + j, first, second);
}

// The global norm is summed in double. Each tile has kNormTile values, and each of its kNormLanes
// lanes adds the squares of every kNormLanes-th value. Lanes are added as a tree. The sums of tiles
// are added in the same way as values.
constexpr uint32_t kNormTile = 8192, kNormLanes = 256;

struct SquaresArgs {
  const float* values = nullptr;
  uint64_t n = 0;
  float factor = 1;            // applied to each value
  double* partials = nullptr;  // [tiles()]
  SLUICE_HD uint64_t tiles() const { return (n + kNormTile - 1) / kNormTile; }
};

SLUICE_HD inline double SquaresLane(const SquaresArgs& a, uint64_t tile, uint32_t lane) {
  const uint64_t begin = tile * kNormTile;
  const uint64_t end = begin + kNormTile < a.n ? begin + kNormTile : a.n;
  double sum = 0;
  for (uint64_t i = begin + lane; i < end; i += kNormLanes) {
    const double value = a.values[i] * a.factor;
    sum += value * value;
  }
  return sum;
}

struct NormArgs {
  const double* partials = nullptr;
  uint64_t n = 0;
  double limit = 0;
  float* global = nullptr;  // [1]
};

SLUICE_HD inline double NormLane(const NormArgs& a, uint32_t lane) {
  double sum = 0;
  for (uint64_t i = lane; i < a.n; i += kNormLanes) sum += a.partials[i];
  return sum;
}

}  // namespace sluice::cuda
