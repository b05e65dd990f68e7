// The update of one element by any rule, and the clipping of gradients.
//
// The CPU's loops (kernel_loops.h) and the GPU's kernels call these functions, compiled without
// contraction, so that they give the same bits (rule_base.h).
//
// Thread safety: free functions, safe from any thread. Each call touches only its own element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/optimizer/rules.h"
#include "common/optimizer/rules/rule_base.h"

namespace sluice {

// The step of any rule.
struct RuleStep {
  enum Rule : uint32_t {
    kNothing,  // the update changes nothing
#define SLUICE_RULE(Class, field) k##Class,
    SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE
  };
  Rule rule = kNothing;
  union {
    // The first floats of every step; others do not depend on the count (kStepDependsOnCount).
    float of_count[2] = {};
#define SLUICE_RULE(Class, field) rules::Class::Step field;
    SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE
  };
};

// Writing of_count changes the first floats of the step that the union holds: those of Adam that
// depend on the count.
#define SLUICE_RULE(Class, field) \
  static_assert(offsetof(RuleStep, field) == offsetof(RuleStep, of_count));
SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE
static_assert(offsetof(rules::Adam::Step, step) == 0 &&
              offsetof(rules::Adam::Step, v_scale) == sizeof(float));

namespace formula {

// a and b are the element's state; a rule with less state ignores them.
SLUICE_FORMULA void Update(const RuleStep& s, float g, float* w, float* a, float* b) {
  switch (s.rule) {
    case RuleStep::kNothing:
      return;
#define SLUICE_RULE(Class, field) \
  case RuleStep::k##Class:        \
    return Update(s.field, g, w, a, b);
      SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE
  }
}

// The comparisons are written so that NaN stays NaN.
SLUICE_FORMULA float ClipValue(float g, float limit) {
  const float low = g < -limit ? -limit : g;
  return low > limit ? limit : low;
}

// The squared norm of get(0) to get(n - 1), in double. Its four partial sums fix an order that is
// the same for every caller and that compilers can overlap.
template <typename Get>
SLUICE_FORMULA double SquaredNorm(const Get& get, size_t n) {
  double sum[4] = {0, 0, 0, 0};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      const double value = get(i + lane);
      sum[lane] += value * value;
    }
  }
  for (; i < n; ++i) {
    const double value = get(i);
    sum[0] += value * value;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The factor that brings a vector of this squared norm down to the norm `limit`. 1 when the norm is
// within the limit or is NaN.
SLUICE_FORMULA float ClipScale(double squared_norm, double limit) {
  const double norm = SquareRoot(squared_norm);
  return norm > limit ? static_cast<float>(limit / norm) : 1.0f;
}

}  // namespace formula
}  // namespace sluice
