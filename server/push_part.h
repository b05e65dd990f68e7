// A part of a push as a shard decodes it, and gradients that wait as a sum.
//
// Thread safety: none; a part belongs to its stream, or to the shard that buffers it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/base/slice.h"
#include "common/wire/frame.h"

namespace sluice {

// A decoded part. Its memory is reused from part to part.
struct PushPart {
  uint32_t rows = 0;
  std::vector<uint64_t> keys;  // sparse: [rows]
  std::vector<float> values;   // sparse: [rows][dim]; dense: [elements] or none
  // Dense parts that are applied at once, unless they are lent: the validated values stay in
  // `message` as received, and `values` is scratch space.
  bool in_message = false;
  PayloadReader message;
  Message wire;  // of a shard with a follower: the part's array as received

  // Between messages: keeps no more memory than usual parts need.
  void Shrink();
};

// Gradients that wait for gradients_to_wait, as their sum.
struct HeldSum {
  std::vector<uint64_t> keys;  // sparse: in the order of their first addition
  std::vector<double> sums;    // sparse: [keys][dim]; dense: [elements] or none
};

}  // namespace sluice
