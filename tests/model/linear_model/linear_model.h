// The smallest model: logistic regression over the numeric features, on the CPU.
//
// It shows what a model needs (CONTRIBUTING.md, "Add a model") and that it needs nothing outside
// its folder but a line in a list of models.
#pragma once

#include "model/model_list.h"

namespace sluice {

// The model "linear", with its network.
ModelEntry LinearModel();

}  // namespace sluice
