// WithDefaults fills absent fields with the values that proto/config.proto promises.
#include "common/optimizer/update_rule.h"

namespace sluice {
namespace {

float DefaultRate(const OptimizerConfig& config) {
  switch (config.rule_case()) {
    case OptimizerConfig::kSgd:
    case OptimizerConfig::kMomentum:
    case OptimizerConfig::kAdagrad:
      return 0.01f;
    case OptimizerConfig::kFtrl:
      return 0.05f;
    case OptimizerConfig::kAdam:
    case OptimizerConfig::RULE_NOT_SET:
      break;
  }
  return 0.001f;
}

void FillSchedule(LearningRateSchedule* schedule) {
  if (schedule->has_polynomial() && !schedule->polynomial().has_power()) {
    schedule->mutable_polynomial()->set_power(1);
  }
  if (schedule->has_cosine_restarts()) {
    auto* cosine = schedule->mutable_cosine_restarts();
    if (!cosine->has_multiplier()) cosine->set_multiplier(2);
    if (!cosine->has_decay()) cosine->set_decay(1);
  }
}

}  // namespace

OptimizerConfig WithDefaults(const OptimizerConfig& config) {
  OptimizerConfig filled = config;
  if (!filled.has_learning_rate()) filled.set_learning_rate(DefaultRate(filled));
  if (filled.rule_case() == OptimizerConfig::RULE_NOT_SET) filled.mutable_adam();
  if (filled.has_momentum() && !filled.momentum().has_momentum()) {
    filled.mutable_momentum()->set_momentum(0.9f);
  }
  if (filled.has_adam()) {
    auto* adam = filled.mutable_adam();
    if (!adam->has_beta1()) adam->set_beta1(0.9f);
    if (!adam->has_beta2()) adam->set_beta2(0.999f);
    if (!adam->has_epsilon()) adam->set_epsilon(1e-8f);
  }
  if (filled.has_adagrad() && !filled.adagrad().has_epsilon()) {
    filled.mutable_adagrad()->set_epsilon(1e-10f);
  }
  if (filled.has_ftrl() && !filled.ftrl().has_beta()) filled.mutable_ftrl()->set_beta(1);
  if (filled.has_schedule()) FillSchedule(filled.mutable_schedule());
  return filled;
}

}  // namespace sluice
