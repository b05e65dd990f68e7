// The models of the shipped programs, as models.inc lists them.
//
// Thread safety:
//   pure functions.
#pragma once

#include "model/model_list.h"

namespace sluice {

// The models without their networks, for the scheduler and the commands that submit jobs. Target
// sluice::model_spec, which links no compute library.
const ModelList& BuiltInSpecs();

// The models with their networks, for workers and prediction. Target sluice::model.
const ModelList& BuiltInModels();

}  // namespace sluice
