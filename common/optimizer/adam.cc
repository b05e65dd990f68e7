// Adam (Kingma and Ba 2015, algorithm 1; as torch.optim.Adam writes it), d = g + weight_decay * w:
//   m = beta1 * m + (1 - beta1) * d;   v = beta2 * v + (1 - beta2) * d^2
//   w -= rate / (1 - beta1^count) * m / (sqrt(v) / sqrt(1 - beta2^count) + epsilon)
// state: m, v
#include <algorithm>
#include <cmath>

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
        epsilon_(config.adam().epsilon()) {}
  int state_floats() const override { return 2; }
  void InitState(float* const* state, size_t n) const override {
    std::fill_n(state[0], n, 0.0f);
    std::fill_n(state[1], n, 0.0f);
  }

 protected:
  void Update(float* __restrict w, float* const* state, const float* __restrict g, size_t n,
              float rate, uint64_t count) const override {
    float* __restrict m = state[0];
    float* __restrict v = state[1];
    // Double: 1 - beta^count loses its digits in float when beta is near 1.
    const double t = static_cast<double>(count);
    const float step = static_cast<float>(rate / (1 - std::pow(beta1_, t)));
    const float v_scale = static_cast<float>(1 / std::sqrt(1 - std::pow(beta2_, t)));
    const float beta1 = static_cast<float>(beta1_), rest1 = static_cast<float>(1 - beta1_);
    const float beta2 = static_cast<float>(beta2_), rest2 = static_cast<float>(1 - beta2_);
    const float decay = weight_decay_, epsilon = epsilon_;
    for (size_t i = 0; i < n; ++i) {
      const float d = g[i] + decay * w[i];
      m[i] = beta1 * m[i] + rest1 * d;
      v[i] = beta2 * v[i] + rest2 * d * d;
      w[i] -= step * m[i] / (std::sqrt(v[i]) * v_scale + epsilon);
    }
  }

 private:
  const double beta1_, beta2_;
  const float epsilon_;
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
