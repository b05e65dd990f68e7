// Any update rule with every learning-rate schedule, with settings under which each step of a
// schedule has another rate.
#pragma once

#include <string>

#include "common/optimizer/update_rule.h"
#include "proto/config.pb.h"
#include "tests/common/optimizer/rule_cases.h"

namespace sluice {

inline constexpr const char* kSchedules[] = {"constant",        "exponential", "inverse_time",
                                             "natural",         "noam",        "polynomial",
                                             "cosine_restarts", "cosine"};

inline OptimizerConfig Optimizer(const std::string& rule, const std::string& schedule) {
  OptimizerConfig config = ParseOptimizer(RuleCaseOf(rule).usual);
  config.set_learning_rate(0.1f);
  LearningRateSchedule* const s = config.mutable_schedule();
  const auto set = [](auto* kind) {
    kind->set_steps(3);
    kind->set_rate(0.7f);
  };
  if (schedule == "constant") s->mutable_constant();
  if (schedule == "exponential") set(s->mutable_exponential());
  if (schedule == "inverse_time") set(s->mutable_inverse_time());
  if (schedule == "natural") set(s->mutable_natural_exponential());
  if (schedule == "noam") {
    s->mutable_noam()->set_warmup(5);
    s->mutable_noam()->set_model_dim(4);
  }
  if (schedule == "polynomial") s->mutable_polynomial()->set_steps(40);
  if (schedule == "cosine") s->mutable_cosine()->set_steps(40);
  if (schedule == "cosine_restarts") s->mutable_cosine_restarts()->set_first_steps(4);
  if (schedule != "noam") s->set_warmup_steps(2);
  return WithDefaults(config);
}

}  // namespace sluice
