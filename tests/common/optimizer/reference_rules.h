// The update rules with weight decay and clipping, in plain float64 loops.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "common/optimizer/update_rule.h"
#include "proto/config.pb.h"
#include "tests/common/optimizer/rule_cases.h"

namespace sluice {

// One parameter vector with its state. `config` must have its defaults filled in.
struct ReferenceRule {
  explicit ReferenceRule(const OptimizerConfig& optimizer, std::vector<double> initial)
      : config(optimizer),
        rule(RuleCaseOf(RuleName(optimizer))),
        w(std::move(initial)),
        a(w.size(), rule.initial_a(config)),
        b(w.size(), 0.0) {}

  void Step(const std::vector<double>& gradient, size_t row, double rate, uint64_t count) {
    const std::vector<double> clipped = Clip(gradient, row);
    for (size_t i = 0; i < w.size(); ++i) {
      const double g = clipped[i] + config.weight_decay() * w[i];
      rule.step(config, g, rate, count, &w[i], &a[i], &b[i]);
    }
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

  OptimizerConfig config;
  const RuleCase& rule;
  std::vector<double> w, a, b;  // the weights, and the rule's first and second state
};

}  // namespace sluice
