// Reference implementations of the update rules: plain float64 loops written from the papers and
// torch's manual.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "proto/config.pb.h"

namespace sluice {

// One parameter vector with its state. `config` must have its defaults filled in.
struct ReferenceRule {
  explicit ReferenceRule(const OptimizerConfig& optimizer, std::vector<double> initial)
      : config(optimizer), w(std::move(initial)), a(w.size(), 0.0), b(w.size(), 0.0) {
    if (config.has_adagrad()) a.assign(w.size(), config.adagrad().initial_accumulator());
  }

  void Step(const std::vector<double>& gradient, size_t row, double rate, uint64_t count) {
    const std::vector<double> clipped = Clip(gradient, row);
    for (size_t i = 0; i < w.size(); ++i)
      StepOne(i, clipped[i] + config.weight_decay() * w[i], rate, count);
  }

  std::vector<double> Clip(std::vector<double> g, size_t row) const {
    const double limit = config.clip_value(), norm_limit = config.clip_row_norm();
    if (limit > 0) {
      for (double& x : g) x = std::min(limit, std::max(-limit, x));
    }
    for (size_t begin = 0; norm_limit > 0 && begin < g.size(); begin += row) {
      double sum = 0;
      for (size_t i = begin; i < begin + row; ++i) sum += g[i] * g[i];
      const double scale = std::min(1.0, norm_limit / std::sqrt(sum));
      for (size_t i = begin; i < begin + row; ++i) g[i] *= scale;
    }
    return g;
  }

  void StepOne(size_t i, double g, double rate, uint64_t count) {
    if (config.has_sgd()) {
      w[i] -= rate * g;
    } else if (config.has_momentum()) {
      const double mu = config.momentum().momentum();
      a[i] = mu * a[i] + g;
      w[i] -= rate * (config.momentum().nesterov() ? g + mu * a[i] : a[i]);
    } else if (config.has_adam()) {
      const double beta1 = config.adam().beta1(), beta2 = config.adam().beta2();
      a[i] = beta1 * a[i] + (1 - beta1) * g;
      b[i] = beta2 * b[i] + (1 - beta2) * g * g;
      const double m = a[i] / (1 - std::pow(beta1, static_cast<double>(count)));
      const double v = b[i] / (1 - std::pow(beta2, static_cast<double>(count)));
      w[i] -= rate * m / (std::sqrt(v) + config.adam().epsilon());
    } else if (config.has_adagrad()) {
      a[i] += g * g;
      w[i] -= rate * g / (std::sqrt(a[i]) + config.adagrad().epsilon());
    } else {
      StepFtrl(i, g, rate);
    }
  }

  void StepFtrl(size_t i, double g, double alpha) {
    const auto& ftrl = config.ftrl();
    const double sigma = (std::sqrt(b[i] + g * g) - std::sqrt(b[i])) / alpha;
    a[i] += g - sigma * w[i];
    b[i] += g * g;
    if (std::abs(a[i]) <= ftrl.l1()) {
      w[i] = 0;
    } else {
      const double sign = a[i] < 0 ? -1 : 1;
      w[i] = -(a[i] - sign * ftrl.l1()) / ((ftrl.beta() + std::sqrt(b[i])) / alpha + ftrl.l2());
    }
  }

  OptimizerConfig config;
  std::vector<double> w, a, b;  // the weights, and the rule's first and second state
};

}  // namespace sluice
