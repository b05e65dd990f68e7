// The formulas of the update rules for one element.
//
// The CPU's loops (kernel_loops.h) and the GPU's kernels call them. The rules' own files (sgd.cc,
// adam.cc, ...) write the formulas out.
//
// Invariants: the functions use only operations that IEEE 754 rounds correctly. Compiled without
// contraction to fused multiply-add (gcc -ffp-contract=off, nvcc --fmad=false), they give the same
// bits everywhere. Every function is inlined and static, so none becomes a symbol that files
// compiled with other flags could share.
//
// Thread safety: free functions, safe from any thread. Each call touches only its own element.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/base/host_device.h"

#define SLUICE_FORMULA SLUICE_HD static inline __attribute__((always_inline))

namespace sluice {

// The numbers that an update needs in addition to its arrays (w the weights, g the gradient).
struct SgdStep {
  float rate, weight_decay;
};
struct MomentumStep {
  float rate, weight_decay, momentum;
  bool nesterov;
};
struct AdamStep {
  float step;     // rate / (1 - beta1^count)
  float v_scale;  // 1 / sqrt(1 - beta2^count)
  float beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
};
struct AdagradStep {
  float rate, weight_decay, epsilon;
};
struct FtrlStep {
  float inverse_rate, l1, l2, beta, weight_decay;
};

// The step of any rule.
struct RuleStep {
  enum Rule : uint32_t { kNothing, kSgd, kMomentum, kAdam, kAdagrad, kFtrl };
  Rule rule = kNothing;
  union {
    SgdStep sgd = {};
    MomentumStep momentum;
    AdamStep adam;
    AdagradStep adagrad;
    FtrlStep ftrl;
  };
};

namespace formula {

// Files with their own compiler flags must not use <cmath>, and device code has no gcc builtins.
SLUICE_FORMULA float SquareRoot(float x) {
#ifdef __CUDA_ARCH__
  return sqrtf(x);
#else
  return __builtin_sqrtf(x);
#endif
}
SLUICE_FORMULA double SquareRoot(double x) {
#ifdef __CUDA_ARCH__
  return sqrt(x);
#else
  return __builtin_sqrt(x);
#endif
}
SLUICE_FORMULA float Magnitude(float x) {
#ifdef __CUDA_ARCH__
  return fabsf(x);
#else
  return __builtin_fabsf(x);
#endif
}
SLUICE_FORMULA float WithSignOf(float magnitude, float sign) {
#ifdef __CUDA_ARCH__
  return copysignf(magnitude, sign);
#else
  return __builtin_copysignf(magnitude, sign);
#endif
}

SLUICE_FORMULA void Sgd(const SgdStep& s, float g, float* w) {
  *w -= s.rate * (g + s.weight_decay * *w);
}

SLUICE_FORMULA void Nesterov(const MomentumStep& s, float g, float* w, float* buf) {
  const float d = g + s.weight_decay * *w;
  *buf = s.momentum * *buf + d;
  *w -= s.rate * (d + s.momentum * *buf);
}

SLUICE_FORMULA void HeavyBall(const MomentumStep& s, float g, float* w, float* buf) {
  const float d = g + s.weight_decay * *w;
  *buf = s.momentum * *buf + d;
  *w -= s.rate * *buf;
}

SLUICE_FORMULA void Adam(const AdamStep& s, float g, float* w, float* m, float* v) {
  const float d = g + s.weight_decay * *w;
  *m = s.beta1 * *m + s.one_minus_beta1 * d;
  *v = s.beta2 * *v + s.one_minus_beta2 * d * d;
  *w -= s.step * *m / (SquareRoot(*v) * s.v_scale + s.epsilon);
}

SLUICE_FORMULA void Adagrad(const AdagradStep& s, float g, float* w, float* a) {
  const float d = g + s.weight_decay * *w;
  *a += d * d;
  *w -= s.rate * d / (SquareRoot(*a) + s.epsilon);
}

SLUICE_FORMULA void Ftrl(const FtrlStep& s, float g, float* w, float* z, float* squares) {
  const float d = g + s.weight_decay * *w;
  const float before = SquareRoot(*squares);
  *squares += d * d;
  const float after = SquareRoot(*squares);
  // (after - before) loses its digits when d^2 << n; this quotient does not.
  const float growth = after > 0 ? d * d / (after + before) : 0.0f;
  *z += d - growth * s.inverse_rate * *w;
  const float magnitude = Magnitude(*z) - s.l1;
  const float pulled = -WithSignOf(magnitude, *z) / ((s.beta + after) * s.inverse_rate + s.l2);
  *w = magnitude > 0 ? pulled : 0.0f;
}

// Applies a rule of any kind. a and b are the element's state; a rule with less state ignores them.
SLUICE_FORMULA void Update(const RuleStep& s, float g, float* w, float* a, float* b) {
  switch (s.rule) {
    case RuleStep::kNothing:
      return;
    case RuleStep::kSgd:
      return Sgd(s.sgd, g, w);
    case RuleStep::kMomentum:
      return s.momentum.nesterov ? Nesterov(s.momentum, g, w, a) : HeavyBall(s.momentum, g, w, a);
    case RuleStep::kAdam:
      return Adam(s.adam, g, w, a, b);
    case RuleStep::kAdagrad:
      return Adagrad(s.adagrad, g, w, a);
    case RuleStep::kFtrl:
      return Ftrl(s.ftrl, g, w, a, b);
  }
}

// The comparisons are written so that NaN stays NaN.
SLUICE_FORMULA float ClipValue(float g, float limit) {
  const float low = g < -limit ? -limit : g;
  return low > limit ? limit : low;
}

// The squared norm of get(0) to get(n - 1), in double. Its four partial sums fix an order that is
// the same for every caller and that compilers can overlap.
template <typename Get>
SLUICE_FORMULA double SquaredNorm(const Get& get, size_t n) {
  double sum[4] = {0, 0, 0, 0};
  size_t i = 0;
  for (; i + 4 <= n; i += 4) {
    for (int lane = 0; lane < 4; ++lane) {
      const double value = get(i + lane);
      sum[lane] += value * value;
    }
  }
  for (; i < n; ++i) {
    const double value = get(i);
    sum[0] += value * value;
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// The factor that brings a vector of this squared norm down to the norm `limit`. 1 when the norm is
// within the limit or is NaN.
SLUICE_FORMULA float ClipScale(double squared_norm, double limit) {
  const double norm = SquareRoot(squared_norm);
  return norm > limit ? static_cast<float>(limit / norm) : 1.0f;
}

}  // namespace formula
}  // namespace sluice
