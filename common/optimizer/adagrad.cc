// AdaGrad (Duchi et al. 2011, in the form of torch.optim.Adagrad), with d = g + weight_decay * w:
//   a += d^2;   w -= rate * d / (sqrt(a) + epsilon)
// The state is a, which begins as initial_accumulator.
#include <algorithm>

#include "common/base/status_macros.h"
#include "common/optimizer/rules.h"

namespace sluice::internal {
namespace {

class Adagrad final : public UpdateRule {
 public:
  explicit Adagrad(const OptimizerConfig& config)
      : UpdateRule(config),
        initial_(config.adagrad().initial_accumulator()),
        epsilon_(config.adagrad().epsilon()) {}
  int state_floats() const override { return 1; }
  void InitState(float* const* state, size_t n) const override {
    std::fill_n(state[0], n, initial_);
  }
  RuleStep StepAt(float rate, uint64_t) const override {
    RuleStep step;
    step.rule = RuleStep::kAdagrad;
    step.adagrad = Step(rate);
    return step;
  }

 protected:
  void Update(float* w, float* const* state, const UnalignedFloat* g, size_t n, float rate,
              uint64_t) const override {
    kernels_.adagrad(Step(rate), n, g, w, state[0]);
  }

 private:
  AdagradStep Step(float rate) const { return {rate, weight_decay_, epsilon_}; }

  const float initial_, epsilon_;
};

}  // namespace

RuleOr CreateAdagrad(const OptimizerConfig& config) {
  SLUICE_RETURN_IF_ERROR(
      RequireAtLeast("adagrad.initial_accumulator", config.adagrad().initial_accumulator(), 0));
  SLUICE_RETURN_IF_ERROR(RequireAboveZero("adagrad.epsilon", config.adagrad().epsilon(),
                                          "a zero gradient would divide 0 by 0"));
  return std::make_unique<const Adagrad>(config);
}

}  // namespace sluice::internal
