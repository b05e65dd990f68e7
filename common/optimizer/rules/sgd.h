// SGD: w -= rate * (g + weight_decay * w). It has no state.
#pragma once

#include <cstdint>

#include "common/optimizer/rules/rule_base.h"

namespace sluice::rules {

class Sgd : public RuleBase {
 public:
  static constexpr float kDefaultRate = 0.01f;
  static constexpr int kState = 0;
  struct Step {
    float rate, weight_decay;
  };

  template <typename Options>
  Sgd(const Options&, float weight_decay) : RuleBase(weight_decay) {}

  Step StepAt(float rate, uint64_t) const { return {rate, weight_decay_}; }
};

SLUICE_FORMULA void Update(const Sgd::Step& s, float g, float* w, float*, float*) {
  *w -= s.rate * (g + s.weight_decay * *w);
}

}  // namespace sluice::rules
