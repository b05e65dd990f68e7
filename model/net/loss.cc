#include <algorithm>
#include <cmath>

#include "model/net/dense_net.h"

namespace sluice {

float Sigmoid(float logit) {
  // exp of a negative number only: no overflow on either side.
  const double e = std::exp(-std::abs(static_cast<double>(logit)));
  return static_cast<float>(logit >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e));
}

double LogLoss(float logit, float label) {
  const double z = logit;
  return std::max(z, 0.0) + std::log1p(std::exp(-std::abs(z))) - label * z;
}

}  // namespace sluice
