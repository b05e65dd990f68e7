// The models of the shipped programs, from models.inc.
//
// Thread safety:
//   pure functions.
#pragma once

#include "model/model_list.h"

namespace sluice {

// Without networks: what the scheduler and the submitting commands need. It links no compute
// library (target sluice::model_spec).
const ModelList& BuiltInSpecs();

// With networks, for workers and prediction (target sluice::model).
const ModelList& BuiltInModels();

}  // namespace sluice
