// A model that counts: training changes each value by the number of times it was trained.
//
// It proves that every update of a job is applied exactly once. Its tables, all 0 at the start:
//   "count"    sparse, dim 1: how often each key was trained
//   "total/i"  dense, i in 0 .. 3, each [1 + numbers]: the number of examples, then the sum of each
//              numeric feature. Four equal tables, so that several pservers hold one.
// The gradients are integers, and every step weighs 1, whatever its number of examples. So the
// values are exact, up to 2^24, with the rule sgd {} of learning rate 1 in these modes:
//   async      as it is, with gradients_to_wait 1
//   Geo        geo_merge: SUM
//   sync       lr_scale: WORKERS, with a power of two as worker_num: the mean over W workers
//              times W is their sum
#pragma once

#include "model/model_list.h"

namespace sluice {

// The model "counting" with its network: model { custom { name: "counting" } }.
ModelEntry CountingModel();

}  // namespace sluice
