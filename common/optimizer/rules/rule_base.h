// The contract of a rule, and square roots for CPU and GPU, which the files of rules/ share.
//
// A rule is a class in rules/NAME.h and a line in rules.h. The class derives from RuleBase and has
//   kDefaultRate         the learning rate of a config that gives none
//   kState               floats of state a parameter, at most kMaxRuleState
//   Step                 the numbers that an update needs in addition to its arrays, without
//                        pointers or constructors, because the GPU gets a copy
//   a constructor        from the rule's message in proto/config.proto and the weight decay
//   StepAt(rate, count)  the Step at a learning rate, for update number `count` (1 at the first)
// It redefines what it does not want to inherit. A function next to the class updates one element:
//   SLUICE_FORMULA void Update(const Rule::Step& s, float g, float* w, float* a, float* b)
// g is the gradient after clipping, w the weight; a and b are the state, null when there is less.
//
// Rules are also compiled with the flags of an instruction set (kernel_loops.h) and by nvcc. There
// only Step and Update are used. The functions that read a message are templates, so that a rule
// needs no protobuf header.
//
// Invariants: a formula uses only operations that IEEE 754 rounds correctly. Compiled without
// contraction to fused multiply-add (gcc -ffp-contract=off, nvcc --fmad=false), it gives the same
// bits everywhere. Every formula is inlined and static, so none becomes a symbol that files
// compiled with other flags could share.
#pragma once

#include "common/base/host_device.h"

#define SLUICE_FORMULA SLUICE_HD static inline __attribute__((always_inline))

namespace sluice {

constexpr int kMaxRuleState = 2;

class RuleBase {
 public:
  // Whether steps of one rate differ by count. Only the first two floats of a Step may: a GPU gets
  // these two for each row, and the others once.
  static constexpr bool kStepDependsOnCount = false;
  // An update at a lower rate changes nothing. Above 0 for a formula that divides by the rate.
  static constexpr float kLeastRate = 0;
  // The state array that can become infinite without a trace in the weight, since the weight's move
  // is divided by its root: a sum of squares. -1: there is none.
  static constexpr int kSilentState = -1;

  explicit RuleBase(float weight_decay) : weight_decay_(weight_decay) {}

  // The value with which state array `index` begins.
  float InitialState(int) const { return 0; }

  // Sets absent fields to the values that proto/config.proto promises.
  template <typename Options>
  static void FillDefaults(Options*) {}

  // Refuses impossible options, by field (OptionChecks in rule_table.cc). Defaults are filled in.
  template <typename Options, typename Checks>
  static void Check(const Options&, Checks*) {}

 protected:
  float weight_decay_;
};

namespace formula {

// Formulas must not use <cmath>: its functions could become shared symbols. Device code has no gcc
// builtins.
SLUICE_FORMULA float SquareRoot(float x) {
#ifdef __CUDA_ARCH__
  return sqrtf(x);
#else
  return __builtin_sqrtf(x);
#endif
}
SLUICE_FORMULA double SquareRoot(double x) {
#ifdef __CUDA_ARCH__
  return sqrt(x);
#else
  return __builtin_sqrt(x);
#endif
}
SLUICE_FORMULA float Magnitude(float x) {
#ifdef __CUDA_ARCH__
  return fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}
SLUICE_FORMULA float WithSignOf(float magnitude, float sign) {
#ifdef __CUDA_ARCH__
  return copysignf(magnitude, sign);
#else
  return __builtin_copysignf(magnitude, sign);
#endif
}

}  // namespace formula
}  // namespace sluice
