#include "worker/open_step.h"

namespace sluice {

void OpenStep::Close(uint64_t steps) {
  if (steps <= closed() || !has_means()) return;
  for (size_t t = 0; t < replica_.tables().size(); ++t)
    if (const float* const mean = exchange_.mean(t)) replica_.Update(t, mean);
  replica_.CloseStep();
  DropMeans();
  exchange_.Clear();
}

}  // namespace sluice
