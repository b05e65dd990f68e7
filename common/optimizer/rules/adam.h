// Adam (Kingma and Ba 2015, algorithm 1, as in torch.optim.Adam), with d = g + weight_decay * w:
//   m = beta1 * m + (1 - beta1) * d;   v = beta2 * v + (1 - beta2) * d^2
//   w -= rate / (1 - beta1^count) * m / (sqrt(v) / sqrt(1 - beta2^count) + epsilon)
// The state is m, v.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "common/optimizer/rules/rule_base.h"

namespace sluice::rules {

class Adam : public RuleBase {
 public:
  static constexpr float kDefaultRate = 0.001f;
  static constexpr int kState = 2;
  static constexpr bool kStepDependsOnCount = true;
  static constexpr int kSilentState = 1;
  struct Step {
    float step;     // rate / (1 - beta1^count)
    float v_scale;  // 1 / sqrt(1 - beta2^count)
    float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
  };

  template <typename Options>
  Adam(const Options& o, float weight_decay)
      : RuleBase(weight_decay), beta1_(o.beta1()), beta2_(o.beta2()), epsilon_(o.epsilon()) {
    for (uint64_t count = 0; count < kCorrections; ++count) {
      corrections_.push_back(Correction(count));
    }
  }

  template <typename Options>
  static void FillDefaults(Options* o) {
    if (!o->has_beta1()) o->set_beta1(0.9f);
    if (!o->has_beta2()) o->set_beta2(0.999f);
    if (!o->has_epsilon()) o->set_epsilon(1e-8f);
  }

  template <typename Options, typename Checks>
  static void Check(const Options& o, Checks* checks) {
    checks->Fraction("beta1", o.beta1());
    checks->Fraction("beta2", o.beta2());
    checks->AboveZero("epsilon", o.epsilon(), "a zero gradient would divide 0 by 0");
  }

  Step StepAt(float rate, uint64_t count) const {
    const BiasCorrection b = count < corrections_.size() ? corrections_[count] : Correction(count);
    return {static_cast<float>(rate / b.one_minus_power1),
            b.v_scale,
            static_cast<float>(beta1_),
            static_cast<float>(1 - beta1_),
            static_cast<float>(beta2_),
            static_cast<float>(1 - beta2_),
            epsilon_,
            weight_decay_};
  }

 private:
  struct BiasCorrection {
    double one_minus_power1;  // 1 - beta1^count
    float v_scale;            // 1 / sqrt(1 - beta2^count)
  };
  // The corrections of small counts are computed once. Each row of a sparse table has its own
  // count, and two powers cost more than the update of a row.
  static constexpr uint64_t kCorrections = 2048;

  // Computed in double: in float, 1 - beta^count loses its digits when beta is near 1.
  BiasCorrection Correction(uint64_t count) const {
    const double t = static_cast<double>(count);
    return {1 - std::pow(beta1_, t), static_cast<float>(1 / std::sqrt(1 - std::pow(beta2_, t)))};
  }

  double beta1_, beta2_;
  float epsilon_;
  std::vector<BiasCorrection> corrections_;  // by count
};

SLUICE_FORMULA void Update(const Adam::Step& s, float g, float* w, float* m, float* v) {
  const float d = g + s.weight_decay * *w;
  *m = s.beta1 * *m + s.one_minus_beta1 * d;
  *v = s.beta2 * *v + s.one_minus_beta2 * d * d;
  *w -= s.step * *m / (formula::SquareRoot(*v) * s.v_scale + s.epsilon);
}

}  // namespace sluice::rules
