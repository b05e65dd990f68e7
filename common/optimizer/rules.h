// The list of the update rules. Everything that depends on the rules walks it.
#pragma once

#include "common/optimizer/rules/adagrad.h"
#include "common/optimizer/rules/adam.h"
#include "common/optimizer/rules/ftrl.h"
#include "common/optimizer/rules/momentum.h"
#include "common/optimizer/rules/sgd.h"

// The class of each rule and its field in `oneof rule` of proto/config.proto, in the oneof's order.
#define SLUICE_RULES(RULE) \
  RULE(Sgd, sgd)           \
  RULE(Momentum, momentum) \
  RULE(Adam, adam)         \
  RULE(Adagrad, adagrad)   \
  RULE(Ftrl, ftrl)
