// Names the frame that a part belongs to.
//
// Thread safety: a value.
#pragma once

#include <cstdint>

#include "common/wire/train_position.h"

namespace sluice {

struct FrameId {
  uint32_t rank = 0;
  uint64_t incarnation = 0;
  uint64_t sequence = 0;
  double weight = 0;       // n_w
  TrainPosition position;  // async and Geo
};

}  // namespace sluice
