// FTRL-Proximal (McMahan et al. 2013, algorithm 1), with alpha = rate and d = g + weight_decay * w:
//   sigma = (sqrt(n + d^2) - sqrt(n)) / alpha;   z += d - sigma * w;   n += d^2
//   w = 0 when |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / alpha + l2)
// A weight that did not start at 0 enters z through sigma * w. The state is z, n.
#pragma once

#include <cstdint>

#include "common/optimizer/rules/rule_base.h"

namespace sluice::rules {

class Ftrl : public RuleBase {
 public:
  static constexpr float kDefaultRate = 0.05f;
  static constexpr int kState = 2;
  static constexpr bool kDividesByRate = true;
  struct Step {
    float inverse_rate, l1, l2, beta, weight_decay;
  };

  template <typename Options>
  Ftrl(const Options& o, float weight_decay)
      : RuleBase(weight_decay), l1_(o.l1()), l2_(o.l2()), beta_(o.beta()) {}

  template <typename Options>
  static void FillDefaults(Options* o) {
    if (!o->has_beta()) o->set_beta(1);
  }

  template <typename Options, typename Checks>
  static void Check(const Options& o, Checks* checks) {
    checks->AtLeast("l1", o.l1(), 0);
    checks->AtLeast("l2", o.l2(), 0);
    checks->AtLeast("beta", o.beta(), 0);
  }

  Step StepAt(float rate, uint64_t) const { return {1 / rate, l1_, l2_, beta_, weight_decay_}; }

 private:
  float l1_, l2_, beta_;
};

SLUICE_FORMULA void Update(const Ftrl::Step& s, float g, float* w, float* z, float* squares) {
  const float d = g + s.weight_decay * *w;
  const float before = formula::SquareRoot(*squares);
  *squares += d * d;
  const float after = formula::SquareRoot(*squares);
  // (after - before) loses its digits when d^2 << n; this quotient does not.
  const float growth = after > 0 ? d * d / (after + before) : 0.0f;
  *z += d - growth * s.inverse_rate * *w;
  const float magnitude = formula::Magnitude(*z) - s.l1;
  const float pulled =
      -formula::WithSignOf(magnitude, *z) / ((s.beta + after) * s.inverse_rate + s.l2);
  *w = magnitude > 0 ? pulled : 0.0f;
}

}  // namespace sluice::rules
