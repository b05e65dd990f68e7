// AdaGrad (Duchi et al. 2011, in the form of torch.optim.Adagrad), with d = g + weight_decay * w:
//   a += d^2;   w -= rate * d / (sqrt(a) + epsilon)
// The state is a, which begins as initial_accumulator.
#pragma once

#include <cstdint>

#include "common/optimizer/rules/rule_base.h"

namespace sluice::rules {

class Adagrad : public RuleBase {
 public:
  static constexpr float kDefaultRate = 0.01f;
  static constexpr int kState = 1;
  static constexpr int kSilentState = 0;
  struct Step {
    float rate, weight_decay, epsilon;
  };

  template <typename Options>
  Adagrad(const Options& o, float weight_decay)
      : RuleBase(weight_decay), initial_(o.initial_accumulator()), epsilon_(o.epsilon()) {}

  template <typename Options>
  static void FillDefaults(Options* o) {
    if (!o->has_epsilon()) o->set_epsilon(1e-10f);
  }

  template <typename Options, typename Checks>
  static void Check(const Options& o, Checks* checks) {
    checks->AtLeast("initial_accumulator", o.initial_accumulator(), 0);
    checks->AboveZero("epsilon", o.epsilon(), "a zero gradient would divide 0 by 0");
  }

  float InitialState(int) const { return initial_; }
  Step StepAt(float rate, uint64_t) const { return {rate, weight_decay_, epsilon_}; }

 private:
  float initial_, epsilon_;
};

SLUICE_FORMULA void Update(const Adagrad::Step& s, float g, float* w, float* a, float*) {
  const float d = g + s.weight_decay * *w;
  *a += d * d;
  *w -= s.rate * d / (formula::SquareRoot(*a) + s.epsilon);
}

}  // namespace sluice::rules
