// Cuts the examples of a training step into passes, which a network computes one after another.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <vector>

#include "model/features/batch.h"

namespace sluice {

// The examples [begin, end) of a batch.
struct StepPass {
  size_t begin = 0, end = 0;
  size_t n() const { return end - begin; }
};

// The place of a call among those that add to the same sums. Sums are rounded and written by the
// last one.
struct SumPart {
  bool first = true, last = true;
  bool whole() const { return first && last; }
};

// One pass, perhaps empty, if the batch has at most `most` examples or `most` is 0. Otherwise each
// pass has 1 to `most` examples. It ends where the sums of the whole batch are cut (Batch::chunk),
// at a multiple of `tile` examples if such a place is within reach: then carrying the sums from
// pass to pass adds the same numbers in the same order as a single pass does. With tile 0 all
// passes but the last have `most` examples.
std::vector<StepPass> CutIntoPasses(const Batch& batch, size_t most, size_t tile);

}  // namespace sluice
