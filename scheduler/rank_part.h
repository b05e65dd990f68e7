// One rank in a checkpoint of an async or Geo job, once all pservers have begun their
// cuts.
//
// Thread safety: a value.
#pragma once

#include <cstdint>

#include "proto/scheduler.pb.h"

namespace sluice {

struct RankPart {
  RankPosition held;   // what every shard holds of the rank's present life, the least of them
  uint64_t tasks = 0;  // acknowledged data tasks of the epoch that `state` covers
  WorkerState state;
};

}  // namespace sluice
