// FTRL-Proximal (McMahan et al. 2013, algorithm 1), with alpha = rate and d = g + weight_decay * w:
//   sigma = (sqrt(n + d^2) - sqrt(n)) / alpha;   z += d - sigma * w;   n += d^2
//   w = 0 when |z| <= l1, else -(z - sign(z) * l1) / D,   D = (beta + sqrt(n)) / alpha + l2
// The state is z, n.
//
// z sums terms that were divided by earlier rates, so it gives w only at the rate of the last
// update. An update whose w is not the one that z, n and its own rate give therefore begins with
//   z = -(w * D + sign(w) * l1);   where w = 0, z is clamped to [-l1, l1]
// which gives this w again. So a change of the rate alone never changes a weight, and neither does
// state that was dropped: a schedule, another base rate, values without state, and weights that
// others have moved (Geo) all continue from w. From zero and at a constant rate z is never
// replaced.
#pragma once

#include <cstdint>

#include "common/optimizer/rules/rule_base.h"

namespace sluice::rules {

class Ftrl : public RuleBase {
 public:
  static constexpr float kDefaultRate = 0.05f;
  static constexpr int kState = 2;
  // No update moves a weight by more than the rate. Lower rates could only make z overflow.
  static constexpr float kLeastRate = 1e-20f;
  static constexpr int kSilentState = 1;
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

// The weight that z gives, with D as `divisor`.
SLUICE_FORMULA float FtrlWeight(const Ftrl::Step& s, float z, float divisor) {
  const float magnitude = formula::Magnitude(z) - s.l1;
  const float pulled = -formula::WithSignOf(magnitude, z) / divisor;
  return magnitude > 0 ? pulled : 0.0f;
}

SLUICE_FORMULA void Update(const Ftrl::Step& s, float g, float* w, float* z, float* squares) {
  const float weight = *w, n = *squares;
  const float d = g + s.weight_decay * weight;
  const float before = formula::SquareRoot(n), after = formula::SquareRoot(n + d * d);
  const float divisor = (s.beta + before) * s.inverse_rate + s.l2;
  // z leads to a weight of 0 only where |z| <= l1, so a z that does not fit it is beyond.
  const float side = weight == 0 ? *z : -weight;
  const float leading = formula::WithSignOf(s.l1, side) - weight * divisor;
  // The same operations as in the last update: at its rate they give its weight to the bit.
  const float from = FtrlWeight(s, *z, divisor) == weight ? *z : leading;
  // (after - before) loses its digits when d^2 << n; this quotient does not.
  const float growth = after > 0 ? d * d / (after + before) : 0.0f;
  *z = from + (d - growth * s.inverse_rate * weight);
  *squares = n + d * d;
  const float next = (s.beta + after) * s.inverse_rate + s.l2;
  const float led_to = FtrlWeight(s, *z, next);
  // Without a gradient w stays to the bit, whatever rounding has made of z. Where D is 0 (beta and
  // l2 are 0, and d^2 is) every weight fits.
  *w = ((d == 0) | (next == 0)) ? weight : led_to;
}

}  // namespace sluice::rules
