// SGD: w -= rate * (g + weight_decay * w). It has no state.
//
// Momentum (torch.optim.SGD with dampening 0), with d = g + weight_decay * w:
//   buf = mu * buf + d;   w -= rate * buf             heavy ball
//                         w -= rate * (d + mu * buf)  Nesterov
// The state is buf.
#include <algorithm>

#include "common/base/status_macros.h"
#include "common/optimizer/rules.h"

namespace sluice::internal {
namespace {

class Sgd final : public UpdateRule {
 public:
  explicit Sgd(const OptimizerConfig& config) : UpdateRule(config) {}
  int state_floats() const override { return 0; }
  void InitState(float* const*, size_t) const override {}
  RuleStep StepAt(float rate, uint64_t) const override {
    RuleStep step;
    step.rule = RuleStep::kSgd;
    step.sgd = Step(rate);
    return step;
  }

 protected:
  void Update(float* w, float* const*, const UnalignedFloat* g, size_t n, float rate,
              uint64_t) const override {
    kernels_.sgd(Step(rate), n, g, w);
  }

 private:
  SgdStep Step(float rate) const { return {rate, weight_decay_}; }
};

class Momentum final : public UpdateRule {
 public:
  explicit Momentum(const OptimizerConfig& config)
      : UpdateRule(config),
        mu_(config.momentum().momentum()),
        nesterov_(config.momentum().nesterov()) {}
  int state_floats() const override { return 1; }
  void InitState(float* const* state, size_t n) const override { std::fill_n(state[0], n, 0.0f); }
  RuleStep StepAt(float rate, uint64_t) const override {
    RuleStep step;
    step.rule = RuleStep::kMomentum;
    step.momentum = Step(rate);
    return step;
  }

 protected:
  void Update(float* w, float* const* state, const UnalignedFloat* g, size_t n, float rate,
              uint64_t) const override {
    kernels_.momentum(Step(rate), n, g, w, state[0]);
  }

 private:
  MomentumStep Step(float rate) const { return {rate, weight_decay_, mu_, nesterov_}; }

  const float mu_;
  const bool nesterov_;
};

}  // namespace

RuleOr CreateSgd(const OptimizerConfig& config) { return std::make_unique<const Sgd>(config); }

RuleOr CreateMomentum(const OptimizerConfig& config) {
  SLUICE_RETURN_IF_ERROR(RequireFraction("momentum.momentum", config.momentum().momentum()));
  if (config.momentum().nesterov() && config.momentum().momentum() == 0) {
    return absl::InvalidArgumentError(
        "momentum.nesterov needs momentum.momentum above 0; set it (0.9 is usual) or use sgd");
  }
  return std::make_unique<const Momentum>(config);
}

}  // namespace sluice::internal
