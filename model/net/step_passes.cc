#include "model/net/step_passes.h"

namespace sluice {
namespace {

// The end of the pass that begins at `begin`; the batch has more than `most` examples from there.
size_t EndOf(const Batch& batch, size_t begin, size_t most, size_t tile) {
  const size_t last = begin + most, chunk = batch.chunk > 0 ? batch.chunk : 1;
  const size_t beyond = (batch.first_position + last) % chunk;  // examples after the last cut
  if (beyond < most) {
    const size_t cut = last - beyond;
    for (size_t end = cut; end > begin; end -= chunk) {
      if (end % tile == 0) return end;
      if (end - begin <= chunk) break;
    }
    return cut;
  }
  // The chunk is longer than a pass.
  const size_t whole = last - last % tile;
  return whole > begin ? whole : last;
}

}  // namespace

std::vector<StepPass> CutIntoPasses(const Batch& batch, size_t most, size_t tile) {
  std::vector<StepPass> passes;
  size_t begin = 0;
  while (most > 0 && batch.n - begin > most) {
    const size_t end = tile == 0 ? begin + most : EndOf(batch, begin, most, tile);
    passes.push_back({begin, end});
    begin = end;
  }
  passes.push_back({begin, batch.n});
  return passes;
}

}  // namespace sluice
