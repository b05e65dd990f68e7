// FTRL-Proximal (McMahan et al. 2013, algorithm 1), with alpha = rate and d = g + weight_decay * w:
//   sigma = (sqrt(n + d^2) - sqrt(n)) / alpha;   z += d - sigma * w;   n += d^2
//   w = 0 when |z| <= l1, else -(z - sign(z) * l1) / ((beta + sqrt(n)) / alpha + l2)
// A weight that did not start at 0 enters z through sigma * w. A rate of 0 changes nothing, because
// the formula divides by the rate. The state is z, n.
#include <algorithm>

#include "common/base/status_macros.h"
#include "common/optimizer/rules.h"

namespace sluice::internal {
namespace {

class Ftrl final : public UpdateRule {
 public:
  explicit Ftrl(const OptimizerConfig& config)
      : UpdateRule(config),
        l1_(config.ftrl().l1()),
        l2_(config.ftrl().l2()),
        beta_(config.ftrl().beta()) {}
  int state_floats() const override { return 2; }
  void InitState(float* const* state, size_t n) const override {
    std::fill_n(state[0], n, 0.0f);
    std::fill_n(state[1], n, 0.0f);
  }
  RuleStep StepAt(float rate, uint64_t) const override {
    RuleStep step;
    if (rate <= 0) return step;
    step.rule = RuleStep::kFtrl;
    step.ftrl = Step(rate);
    return step;
  }

 protected:
  void Update(float* w, float* const* state, const UnalignedFloat* g, size_t n, float rate,
              uint64_t) const override {
    if (rate <= 0) return;
    kernels_.ftrl(Step(rate), n, g, w, state[0], state[1]);
  }

 private:
  FtrlStep Step(float rate) const { return {1 / rate, l1_, l2_, beta_, weight_decay_}; }

  const float l1_, l2_, beta_;
};

}  // namespace

RuleOr CreateFtrl(const OptimizerConfig& config) {
  SLUICE_RETURN_IF_ERROR(RequireAtLeast("ftrl.l1", config.ftrl().l1(), 0));
  SLUICE_RETURN_IF_ERROR(RequireAtLeast("ftrl.l2", config.ftrl().l2(), 0));
  SLUICE_RETURN_IF_ERROR(RequireAtLeast("ftrl.beta", config.ftrl().beta(), 0));
  return std::make_unique<const Ftrl>(config);
}

}  // namespace sluice::internal
