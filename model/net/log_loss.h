// Sigmoid and log loss of one logit, for the CPU and for CUDA kernels.
//
// Thread safety: free functions, safe from any thread.
#pragma once

#include <cmath>

#include "common/base/host_device.h"

namespace sluice {

// 1 / (1 + exp(-z)). Takes exp only of a number that is not positive, so that it cannot overflow.
SLUICE_HD inline double SigmoidOf(double z) {
  const double e = std::exp(-std::fabs(z));
  return z >= 0 ? 1.0 / (1.0 + e) : e / (1.0 + e);
}

// log(1 + exp(z)) - label * z, computed without overflow. NaN stays NaN.
SLUICE_HD inline double LogLossOf(double z, double label) {
  const double positive = z < 0.0 ? 0.0 : z;
  return positive + std::log1p(std::exp(-std::fabs(z))) - label * z;
}

// The same for a float32 logit. The sigmoid is rounded to float32; the loss is in double.
inline float Sigmoid(float logit) { return static_cast<float>(SigmoidOf(logit)); }
inline double LogLoss(float logit, float label) { return LogLossOf(logit, label); }

}  // namespace sluice
