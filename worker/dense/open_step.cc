#include "worker/dense/open_step.h"

namespace sluice {

void OpenStep::Close(uint64_t steps) {
  if (steps <= closed() || !has_means()) return;
  // All ranks have the same means and apply them in the same order, so their tables stay equal to
  // the bit. A table without a mean is not updated, but the step counts for its schedule.
  for (size_t t = 0; t < replica_.tables().size(); ++t)
    if (const float* const mean = exchange_.mean(t)) replica_.Update(t, mean);
  replica_.CloseStep();
  // Before the buckets are used again: from now on they hold gradients of the next step.
  DropMeans();
  exchange_.Clear();
}

}  // namespace sluice
