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

// Says whether a call is the first or the last of those that add to the same sums. The last one
// rounds and writes them.
struct SumPart {
  bool first = true, last = true;
  bool whole() const { return first && last; }
};

// One pass, perhaps empty, if the batch has at most `most` examples or `most` is 0. Otherwise each
// pass has 1 to `most` examples. If possible, a pass ends where the sums of the whole batch are cut
// (Batch::chunk) and at a multiple of `tile` examples. Carrying the sums from pass to pass then
// gives the bits of a single pass. With tile 0 all passes but the last have `most` examples.
std::vector<StepPass> CutIntoPasses(const Batch& batch, size_t most, size_t tile);

}  // namespace sluice
