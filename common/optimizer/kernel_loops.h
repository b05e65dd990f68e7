// The loops of kernels.h. Included once by each kernels_*.cc, which gives the table its name; the
// compiler's flags of that file make the difference.
//
// Nothing here may become a symbol that another file could share: such a function, compiled with
// this file's flags, could be the one that the linker keeps for all. Hence the unnamed namespace
// and builtins instead of <cmath>.
#include <cstddef>

#include "common/optimizer/kernels.h"

namespace sluice::internal {
namespace {

void Sgd(const SgdStep& s, size_t n, const float* __restrict g, float* __restrict w) {
  const float rate = s.rate, decay = s.weight_decay;
  for (size_t i = 0; i < n; ++i) w[i] -= rate * (g[i] + decay * w[i]);
}

void Momentum(const MomentumStep& s, size_t n, const float* __restrict g, float* __restrict w,
              float* __restrict buf) {
  const float rate = s.rate, decay = s.weight_decay, mu = s.momentum;
  if (s.nesterov) {
    for (size_t i = 0; i < n; ++i) {
      const float d = g[i] + decay * w[i];
      buf[i] = mu * buf[i] + d;
      w[i] -= rate * (d + mu * buf[i]);
    }
  } else {
    for (size_t i = 0; i < n; ++i) {
      const float d = g[i] + decay * w[i];
      buf[i] = mu * buf[i] + d;
      w[i] -= rate * buf[i];
    }
  }
}

void Adam(const AdamStep& s, size_t n, const float* __restrict g, float* __restrict w,
          float* __restrict m, float* __restrict v) {
  const float step = s.step, v_scale = s.v_scale, epsilon = s.epsilon, decay = s.weight_decay;
  const float beta1 = s.beta1, rest1 = s.one_minus_beta1;
  const float beta2 = s.beta2, rest2 = s.one_minus_beta2;
  for (size_t i = 0; i < n; ++i) {
    const float d = g[i] + decay * w[i];
    m[i] = beta1 * m[i] + rest1 * d;
    v[i] = beta2 * v[i] + rest2 * d * d;
    w[i] -= step * m[i] / (__builtin_sqrtf(v[i]) * v_scale + epsilon);
  }
}

void Adagrad(const AdagradStep& s, size_t n, const float* __restrict g, float* __restrict w,
             float* __restrict a) {
  const float rate = s.rate, decay = s.weight_decay, epsilon = s.epsilon;
  for (size_t i = 0; i < n; ++i) {
    const float d = g[i] + decay * w[i];
    a[i] += d * d;
    w[i] -= rate * d / (__builtin_sqrtf(a[i]) + epsilon);
  }
}

void Ftrl(const FtrlStep& s, size_t n, const float* __restrict g, float* __restrict w,
          float* __restrict z, float* __restrict squares) {
  const float inverse = s.inverse_rate, l1 = s.l1, l2 = s.l2, beta = s.beta, decay = s.weight_decay;
  for (size_t i = 0; i < n; ++i) {
    const float d = g[i] + decay * w[i];
    const float before = __builtin_sqrtf(squares[i]);
    squares[i] += d * d;
    const float after = __builtin_sqrtf(squares[i]);
    // (after - before) loses its digits when d^2 << n; this quotient does not.
    const float growth = after > 0 ? d * d / (after + before) : 0.0f;
    z[i] += d - growth * inverse * w[i];
    const float magnitude = __builtin_fabsf(z[i]) - l1;
    const float pulled = -__builtin_copysignf(magnitude, z[i]) / ((beta + after) * inverse + l2);
    w[i] = magnitude > 0 ? pulled : 0.0f;
  }
}

void AddScaled(double weight, size_t n, const float* __restrict g, double* __restrict sum) {
  for (size_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(g[i]);
}

void Divide(double total, size_t n, const double* __restrict sum, float* __restrict mean) {
  for (size_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sum[i] / total);
}

}  // namespace

#define SLUICE_KERNELS(name) \
  { name, Sgd, Momentum, Adam, Adagrad, Ftrl, AddScaled, Divide }

}  // namespace sluice::internal
