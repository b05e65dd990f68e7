// Adam (Kingma and Ba 2015, algorithm 1, as in torch.optim.Adam), with d = g + weight_decay * w:
//   m = beta1 * m + (1 - beta1) * d;   v = beta2 * v + (1 - beta2) * d^2
//   w -= rate / (1 - beta1^count) * m / (sqrt(v) / sqrt(1 - beta2^count) + epsilon)
// The state is m, v.
#include <algorithm>
#include <cmath>
#include <vector>

#include "common/base/status_macros.h"
#include "common/optimizer/rules.h"

namespace sluice::internal {
namespace {

class Adam final : public UpdateRule {
 public:
  explicit Adam(const OptimizerConfig& config)
      : UpdateRule(config),
        beta1_(config.adam().beta1()),
        beta2_(config.adam().beta2()),
        epsilon_(config.adam().epsilon()) {
    for (uint64_t count = 0; count < kCorrections; ++count) {
      corrections_.push_back(Correction(count));
    }
  }
  int state_floats() const override { return 2; }
  void InitState(float* const* state, size_t n) const override {
    std::fill_n(state[0], n, 0.0f);
    std::fill_n(state[1], n, 0.0f);
  }

  RuleStep StepAt(float rate, uint64_t count) const override {
    RuleStep step;
    step.rule = RuleStep::kAdam;
    step.adam = Step(rate, count);
    return step;
  }

 protected:
  void Update(float* w, float* const* state, const UnalignedFloat* g, size_t n, float rate,
              uint64_t count) const override {
    kernels_.adam(Step(rate, count), n, g, w, state[0], state[1]);
  }

 private:
  struct BiasCorrection {
    double one_minus_power1;  // 1 - beta1^count
    float v_scale;            // 1 / sqrt(1 - beta2^count)
  };
  // The corrections of small counts are computed once. Each row of a sparse table has its own
  // count, and two powers cost more than the update of a row.
  static constexpr uint64_t kCorrections = 2048;

  AdamStep Step(float rate, uint64_t count) const {
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

  // Computed in double: in float, 1 - beta^count loses its digits when beta is near 1.
  BiasCorrection Correction(uint64_t count) const {
    const double t = static_cast<double>(count);
    return {1 - std::pow(beta1_, t), static_cast<float>(1 / std::sqrt(1 - std::pow(beta2_, t)))};
  }

  const double beta1_, beta2_;
  const float epsilon_;
  std::vector<BiasCorrection> corrections_;  // by count
};

}  // namespace

RuleOr CreateAdam(const OptimizerConfig& config) {
  SLUICE_RETURN_IF_ERROR(RequireFraction("adam.beta1", config.adam().beta1()));
  SLUICE_RETURN_IF_ERROR(RequireFraction("adam.beta2", config.adam().beta2()));
  SLUICE_RETURN_IF_ERROR(RequireAboveZero("adam.epsilon", config.adam().epsilon(),
                                          "a zero gradient would divide 0 by 0"));
  return std::make_unique<const Adam>(config);
}

}  // namespace sluice::internal
