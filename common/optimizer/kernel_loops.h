// The loops of kernels.h, compiled once by each kernels_*.cc with its own compiler flags.
//
// Nothing here may become a symbol that other files share: the linker could keep the copy that was
// compiled with one file's flags and use it everywhere. Hence the unnamed namespace here, and only
// static functions and builtins in formulas. Nothing else of a rule may be called here.
#include <cstddef>
#include <cstdint>

#include "common/optimizer/kernels.h"

namespace sluice::internal {
namespace {

// The bits of a float. As integers, those without a sign order floats by magnitude, and infinity
// and NaN come last. Signed, because SSE2 compares no other integers.
int32_t Bits(float x) {
  int32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return bits;
}

constexpr int32_t kInfinity = 0x7F800000;

int32_t Larger(int32_t a, int32_t b) { return a > b ? a : b; }

// The loop copies its step: the compiler then knows that no write to an array changes the step.
// New values are looked at here, where they are in registers: a pass of its own would cost more.
template <typename Rule>
bool UpdateArrays(const typename Rule::Step& step, size_t n, const UnalignedFloat* __restrict g,
                  float* __restrict w, float* __restrict a, float* __restrict b) {
  const typename Rule::Step s = step;
  int32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    Update(s, g[i], &w[i], Rule::kState > 0 ? &a[i] : nullptr, Rule::kState > 1 ? &b[i] : nullptr);
    largest = Larger(largest, Bits(w[i]) & INT32_MAX);
    // Without removing the sign: of a sum of squares only NaN has one, and NaN reaches the weight.
    if (Rule::kSilentState == 0) largest = Larger(largest, Bits(a[i]));
    if (Rule::kSilentState == 1) largest = Larger(largest, Bits(b[i]));
  }
  return largest < kInfinity;
}

bool UpdateByRule(const RuleStep& step, size_t n, const UnalignedFloat* g, float* w,
                  float* const* state) {
  switch (step.rule) {
    case RuleStep::kNothing:
      break;
#define SLUICE_RULE(Class, field)                                                    \
  case RuleStep::k##Class:                                                           \
    return UpdateArrays<rules::Class>(step.field, n, g, w,                           \
                                      rules::Class::kState > 0 ? state[0] : nullptr, \
                                      rules::Class::kState > 1 ? state[1] : nullptr);
      SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE
  }
  return true;
}

void AddScaled(double weight, size_t n, const UnalignedFloat* __restrict g,
               double* __restrict sum) {
  for (size_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(g[i]);
}

void Divide(double total, size_t n, const double* __restrict sum, float* __restrict mean) {
  for (size_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sum[i] / total);
}

bool AllFinite(size_t n, const UnalignedFloat* values) {
  int32_t largest = 0;
  for (size_t i = 0; i < n; ++i) largest = Larger(largest, Bits(values[i]) & INT32_MAX);
  return largest < kInfinity;
}

}  // namespace

#define SLUICE_KERNELS(name) \
  { name, UpdateByRule, AddScaled, Divide, AllFinite }

}  // namespace sluice::internal
