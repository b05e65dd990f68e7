// Momentum (torch.optim.SGD with dampening 0), with d = g + weight_decay * w:
//   buf = mu * buf + d;   w -= rate * buf             heavy ball
//                         w -= rate * (d + mu * buf)  Nesterov
// The state is buf.
#pragma once

#include <cstdint>

#include "common/optimizer/rules/rule_base.h"

namespace sluice::rules {

class Momentum : public RuleBase {
 public:
  static constexpr float kDefaultRate = 0.01f;
  static constexpr int kState = 1;
  struct Step {
    float rate, weight_decay, momentum;
    bool nesterov;
  };

  template <typename Options>
  Momentum(const Options& o, float weight_decay)
      : RuleBase(weight_decay), mu_(o.momentum()), nesterov_(o.nesterov()) {}

  template <typename Options>
  static void FillDefaults(Options* o) {
    if (!o->has_momentum()) o->set_momentum(0.9f);
  }

  template <typename Options, typename Checks>
  static void Check(const Options& o, Checks* checks) {
    checks->Fraction("momentum", o.momentum());
    // Without momentum both forms are plain SGD, so the option would have no effect.
    if (o.nesterov() && o.momentum() == 0) {
      checks->Refuse("nesterov",
                     "needs momentum.momentum above 0; set it (0.9 is usual) or use sgd");
    }
  }

  Step StepAt(float rate, uint64_t) const { return {rate, weight_decay_, mu_, nesterov_}; }

 private:
  float mu_;
  bool nesterov_;
};

// The compiler moves the choice out of the loops over arrays.
SLUICE_FORMULA void Update(const Momentum::Step& s, float g, float* w, float* buf, float*) {
  const float d = g + s.weight_decay * *w;
  *buf = s.momentum * *buf + d;
  *w -= s.rate * (s.nesterov ? d + s.momentum * *buf : *buf);
}

}  // namespace sluice::rules
