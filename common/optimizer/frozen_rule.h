// The rule of a parameter that a program has frozen: SGD with rate 0.
//
// Thread safety: a pure function.
#pragma once

#include "proto/config.pb.h"

namespace sluice {

// Whether no update by this rule changes anything.
inline bool IsFrozen(const OptimizerConfig& rule) {
  return rule.has_sgd() && rule.has_learning_rate() && rule.learning_rate() == 0 &&
         !rule.has_schedule();
}

}  // namespace sluice
