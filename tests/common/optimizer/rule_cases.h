// Describes each update rule for tests: configs, refusals, and the rule in plain float64.
//
// Each rule of common/optimizer/rules.h has a function NameCase here. Everything else walks
// RuleCases(). The float64 steps are written from the papers and from torch's manual.
#pragma once

#include <google/protobuf/text_format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "common/optimizer/rules.h"
#include "proto/config.pb.h"

namespace sluice {

struct RuleCase {
  std::string name;   // the rule's field in OptimizerConfig
  const char* usual;  // a config for tests of other parts
  const char* job;    // a config with which the loss of a small job falls
  // Compared with the float64 steps, and between instruction sets.
  std::vector<const char*> golden;
  const char* defaults;  // what `name {}` becomes
  // Impossible configs, each with the field that the message names.
  std::vector<std::pair<const char*, const char*>> refused;
  // One update of a parameter w with its state a, b. g contains the weight decay.
  void (*step)(const OptimizerConfig& config, double g, double rate, uint64_t count, double* w,
               double* a, double* b);
  // The value with which a begins; b begins with 0.
  double (*initial_a)(const OptimizerConfig& config) = [](const OptimizerConfig&) { return 0.0; };
};

inline RuleCase SgdCase() {
  RuleCase c;
  c.usual = "sgd {}";
  c.job = "sgd {} learning_rate: 0.5";
  c.golden = {"sgd {}", "sgd {} learning_rate: 0.2 weight_decay: 0.01",
              "sgd {} learning_rate: 0.1 clip_value: 0.25",
              "sgd {} learning_rate: 0.1 clip_row_norm: 0.5",
              "sgd {} learning_rate: 0.1 clip_value: 0.3 clip_row_norm: 0.6 weight_decay: 0.1"};
  c.defaults = "sgd {} learning_rate: 0.01";
  c.step = [](const OptimizerConfig&, double g, double rate, uint64_t, double* w, double*,
              double*) { *w -= rate * g; };
  return c;
}

inline RuleCase MomentumCase() {
  RuleCase c;
  c.usual = "momentum { nesterov: true }";
  c.job = "momentum { momentum: 0.8 nesterov: true } learning_rate: 0.1";
  c.golden = {"momentum {}", "momentum { momentum: 0.5 } learning_rate: 0.05 weight_decay: 0.02",
              "momentum { nesterov: true }",
              "momentum { momentum: 0.7 nesterov: true } weight_decay: 0.02"};
  c.defaults = "momentum { momentum: 0.9 } learning_rate: 0.01";
  c.refused = {{"momentum { momentum: 1 }", "momentum.momentum"},
               {"momentum { momentum: 0 nesterov: true }", "momentum.nesterov"}};
  c.step = [](const OptimizerConfig& config, double g, double rate, uint64_t, double* w, double* a,
              double*) {
    const double mu = config.momentum().momentum();
    *a = mu * *a + g;
    *w -= rate * (config.momentum().nesterov() ? g + mu * *a : *a);
  };
  return c;
}

inline RuleCase AdamCase() {
  RuleCase c;
  c.usual = "adam {}";
  c.job = "adam {} learning_rate: 0.02";
  c.golden = {"adam {}", "adam {} learning_rate: 0.01 weight_decay: 0.05",
              "adam { beta1: 0.8 beta2: 0.95 epsilon: 1e-4 } learning_rate: 0.005",
              "adam { beta1: 0 beta2: 0.5 } learning_rate: 0.01"};
  c.defaults = "adam { beta1: 0.9 beta2: 0.999 epsilon: 1e-8 } learning_rate: 0.001";
  c.refused = {{"adam { beta1: 1 }", "adam.beta1"},
               {"adam { beta2: -0.5 }", "adam.beta2"},
               {"adam { epsilon: 0 }", "adam.epsilon"}};
  c.step = [](const OptimizerConfig& config, double g, double rate, uint64_t count, double* w,
              double* a, double* b) {
    const double beta1 = config.adam().beta1(), beta2 = config.adam().beta2();
    *a = beta1 * *a + (1 - beta1) * g;
    *b = beta2 * *b + (1 - beta2) * g * g;
    const double m = *a / (1 - std::pow(beta1, static_cast<double>(count)));
    const double v = *b / (1 - std::pow(beta2, static_cast<double>(count)));
    *w -= rate * m / (std::sqrt(v) + config.adam().epsilon());
  };
  return c;
}

inline RuleCase AdagradCase() {
  RuleCase c;
  c.usual = "adagrad {}";
  c.job = "adagrad { initial_accumulator: 0.1 } learning_rate: 0.1";
  c.golden = {
      "adagrad {}",
      "adagrad { initial_accumulator: 0.1 epsilon: 1e-6 } learning_rate: 0.1 weight_decay: 0.01",
      "adagrad { epsilon: 0.2 } learning_rate: 0.1"};
  c.defaults = "adagrad { epsilon: 1e-10 } learning_rate: 0.01";
  c.refused = {{"adagrad { initial_accumulator: -1 }", "adagrad.initial_accumulator"},
               {"adagrad { epsilon: 0 }", "adagrad.epsilon"}};
  c.step = [](const OptimizerConfig& config, double g, double rate, uint64_t, double* w, double* a,
              double*) {
    *a += g * g;
    *w -= rate * g / (std::sqrt(*a) + config.adagrad().epsilon());
  };
  c.initial_a = [](const OptimizerConfig& config) {
    return static_cast<double>(config.adagrad().initial_accumulator());
  };
  return c;
}

inline RuleCase FtrlCase() {
  RuleCase c;
  c.usual = "ftrl { l1: 0.01 }";
  c.job = "ftrl { l1: 0.0001 } learning_rate: 0.2";
  c.golden = {"ftrl {}",
              "ftrl { l1: 0.5 l2: 0.1 } learning_rate: 0.1",
              "ftrl { l1: 0.01 l2: 1 beta: 0.5 } learning_rate: 0.5",
              "ftrl {} weight_decay: 0.02",
              "ftrl { l1: 0.1 beta: 0 } learning_rate: 0.2",
              "ftrl { l1: 0.01 l2: 0.1 } learning_rate: 0.5 schedule { cosine { steps: 1000 } }"};
  c.defaults = "ftrl { beta: 1 } learning_rate: 0.05";
  c.refused = {{"ftrl { l1: -1 }", "ftrl.l1"},
               {"ftrl { l2: nan }", "ftrl.l2"},
               {"ftrl { beta: -1 }", "ftrl.beta"}};
  c.step = [](const OptimizerConfig& config, double g, double rate, uint64_t, double* w, double* a,
              double* b) {
    const auto& ftrl = config.ftrl();
    const auto divisor = [&] { return (ftrl.beta() + std::sqrt(*b)) / rate + ftrl.l2(); };
    const auto weight = [&] {
      if (std::abs(*a) <= ftrl.l1()) return 0.0;
      return -(*a - std::copysign(ftrl.l1(), *a)) / divisor();
    };
    if (*w != weight()) {
      *a = *w == 0 ? std::clamp<double>(*a, -ftrl.l1(), ftrl.l1())
                   : -(*w * divisor() + std::copysign(ftrl.l1(), *w));
    }
    const double sigma = (std::sqrt(*b + g * g) - std::sqrt(*b)) / rate;
    *a += g - sigma * *w;
    *b += g * g;
    *w = weight();
  };
  return c;
}

inline const std::vector<RuleCase>& RuleCases() {
  static const auto* const cases = [] {
    auto* all = new std::vector<RuleCase>;
#define SLUICE_RULE(Class, field) \
  all->push_back(Class##Case());  \
  all->back().name = #field;
    SLUICE_RULES(SLUICE_RULE)
#undef SLUICE_RULE
    return all;
  }();
  return *cases;
}

// The case with this name. There must be one.
inline const RuleCase& RuleCaseOf(const std::string& name) {
  for (const RuleCase& c : RuleCases()) {
    if (c.name == name) return c;
  }
  std::abort();
}

// Ends the test program when the text is wrong; protobuf logs the mistake.
inline OptimizerConfig ParseOptimizer(const std::string& text) {
  OptimizerConfig config;
  if (!google::protobuf::TextFormat::ParseFromString(text, &config)) std::abort();
  return config;
}

}  // namespace sluice
