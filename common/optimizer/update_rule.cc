// Clips gradients, and passes an update to its loop. Compiled with the flags of a portable loop
// file (CMakeLists.txt), because clipping must give the same bits on every machine as well.
#include "common/optimizer/update_rule.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace sluice {
namespace {

void ClipValues(const UnalignedFloat* __restrict in, size_t n, float limit, float* __restrict out) {
  for (size_t i = 0; i < n; ++i) out[i] = formula::ClipValue(in[i], limit);
}

// Leaves a row within the limit alone, which saves a pass over it: most rows have scale 1.
void ClipRow(float* row, size_t n, float limit) {
  const float scale =
      formula::ClipScale(formula::SquaredNorm([row](size_t i) { return row[i]; }, n), limit);
  if (scale == 1) return;
  for (size_t i = 0; i < n; ++i) row[i] *= scale;
}

// Memory for a clipped gradient. It grows to the largest block that the thread has met and stays,
// so that an update allocates nothing.
float* Scratch(size_t n) {
  static thread_local std::vector<float> scratch;
  if (scratch.size() < n) scratch.resize(n);
  return scratch.data();
}

}  // namespace

UpdateRule::UpdateRule(const OptimizerConfig& config, const Facts& facts)
    : kernels_(BestKernels()),
      facts_(facts),
      clip_value_(config.clip_value()),
      clip_row_norm_(config.clip_row_norm()) {}

void UpdateRule::InitState(float* const* state, size_t n) const {
  for (int i = 0; i < facts_.state_floats; ++i) std::fill_n(state[i], n, facts_.initial_state[i]);
}

bool UpdateRule::Apply(float* weights, float* const* state, const UnalignedFloat* gradient,
                       size_t n, size_t row, float rate, uint64_t count) const {
  if (clip_value_ > 0 || clip_row_norm_ > 0) {
    // A copy, because the gradient belongs to the caller: it may lie in a received message.
    float* clipped = Scratch(n);
    if (clip_value_ > 0) {
      ClipValues(gradient, n, clip_value_, clipped);
    } else {
      std::memcpy(clipped, gradient, n * sizeof(float));
    }
    // After the values, so that one extreme value does not scale down the rest of its row.
    if (clip_row_norm_ > 0 && row > 0) {
      for (size_t i = 0; i < n; i += row) {
        ClipRow(clipped + i, std::min(row, n - i), clip_row_norm_);
      }
    }
    gradient = clipped;
  }
  // One step for all n parameters. Everything that depends on the rate and the count is computed
  // here once, so that the loops compute no powers.
  return kernels_.update(StepAt(rate, count), n, gradient, weights, state);
}

}  // namespace sluice
