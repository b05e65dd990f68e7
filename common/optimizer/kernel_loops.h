// The loops of kernels.h, compiled once by each kernels_*.cc with its own compiler flags.
//
// Nothing here may become a symbol that other files share: the linker could keep the copy that was
// compiled with one file's flags and use it everywhere. Hence the unnamed namespace here, and only
// static functions and builtins in formulas. Nothing else of a rule may be called here.
#include <cstddef>

#include "common/optimizer/kernels.h"

namespace sluice::internal {
namespace {

// The loop copies its step: the compiler then knows that no write to an array changes the step.
template <typename Rule>
void UpdateArrays(const typename Rule::Step& step, size_t n, const UnalignedFloat* __restrict g,
                  float* __restrict w, float* __restrict a, float* __restrict b) {
  const typename Rule::Step s = step;
  for (size_t i = 0; i < n; ++i)
    Update(s, g[i], &w[i], Rule::kState > 0 ? &a[i] : nullptr, Rule::kState > 1 ? &b[i] : nullptr);
}

void UpdateByRule(const RuleStep& step, size_t n, const UnalignedFloat* g, float* w,
                  float* const* state) {
  switch (step.rule) {
    case RuleStep::kNothing:
      return;
#define SLUICE_RULE(Class, field)                                                    \
  case RuleStep::k##Class:                                                           \
    return UpdateArrays<rules::Class>(step.field, n, g, w,                           \
                                      rules::Class::kState > 0 ? state[0] : nullptr, \
                                      rules::Class::kState > 1 ? state[1] : nullptr);
      SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE
  }
}

void AddScaled(double weight, size_t n, const UnalignedFloat* __restrict g,
               double* __restrict sum) {
  for (size_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(g[i]);
}

void Divide(double total, size_t n, const double* __restrict sum, float* __restrict mean) {
  for (size_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sum[i] / total);
}

}  // namespace

#define SLUICE_KERNELS(name) \
  { name, UpdateByRule, AddScaled, Divide }

}  // namespace sluice::internal
