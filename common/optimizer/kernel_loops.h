// The loops of kernels.h, compiled once by each kernels_*.cc with its own compiler flags.
//
// Nothing here may become a symbol that other files share: the linker could keep the copy that was
// compiled with one file's flags and use it everywhere. Hence the unnamed namespace here, and only
// static functions and builtins, no <cmath>, in rule_formulas.h.
#include <cstddef>

#include "common/optimizer/kernels.h"

namespace sluice::internal {
namespace {

// Each loop copies its step: the compiler then knows that no write to an array changes the step.
void Sgd(const SgdStep& step, size_t n, const UnalignedFloat* __restrict g, float* __restrict w) {
  const SgdStep s = step;
  for (size_t i = 0; i < n; ++i) formula::Sgd(s, g[i], &w[i]);
}

void Momentum(const MomentumStep& step, size_t n, const UnalignedFloat* __restrict g,
              float* __restrict w, float* __restrict buf) {
  const MomentumStep s = step;
  if (s.nesterov) {
    for (size_t i = 0; i < n; ++i) formula::Nesterov(s, g[i], &w[i], &buf[i]);
  } else {
    for (size_t i = 0; i < n; ++i) formula::HeavyBall(s, g[i], &w[i], &buf[i]);
  }
}

void Adam(const AdamStep& step, size_t n, const UnalignedFloat* __restrict g, float* __restrict w,
          float* __restrict m, float* __restrict v) {
  const AdamStep s = step;
  for (size_t i = 0; i < n; ++i) formula::Adam(s, g[i], &w[i], &m[i], &v[i]);
}

void Adagrad(const AdagradStep& step, size_t n, const UnalignedFloat* __restrict g,
             float* __restrict w, float* __restrict a) {
  const AdagradStep s = step;
  for (size_t i = 0; i < n; ++i) formula::Adagrad(s, g[i], &w[i], &a[i]);
}

void Ftrl(const FtrlStep& step, size_t n, const UnalignedFloat* __restrict g, float* __restrict w,
          float* __restrict z, float* __restrict squares) {
  const FtrlStep s = step;
  for (size_t i = 0; i < n; ++i) formula::Ftrl(s, g[i], &w[i], &z[i], &squares[i]);
}

void AddScaled(double weight, size_t n, const UnalignedFloat* __restrict g,
               double* __restrict sum) {
  for (size_t i = 0; i < n; ++i) sum[i] += weight * static_cast<double>(g[i]);
}

void Divide(double total, size_t n, const double* __restrict sum, float* __restrict mean) {
  for (size_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sum[i] / total);
}

}  // namespace

#define SLUICE_KERNELS(name) \
  { name, Sgd, Momentum, Adam, Adagrad, Ftrl, AddScaled, Divide }

}  // namespace sluice::internal
