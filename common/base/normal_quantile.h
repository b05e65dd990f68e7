// The quantile of the standard normal distribution.
//
// Thread safety: pure function.
#pragma once

#include <cmath>

namespace sluice {

// Returns x with Phi(x) = p, by bisection; at most 8 in absolute value.
// REQUIRES: 0 < p < 1.
inline double NormalQuantile(double p) {
  double low = -8, high = 8;
  while (high - low > 1e-9) {
    const double middle = (low + high) / 2;
    (std::erfc(-middle / std::sqrt(2.0)) / 2 < p ? low : high) = middle;
  }
  return (low + high) / 2;
}

}  // namespace sluice
