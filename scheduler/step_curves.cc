#include "scheduler/step_curves.h"

#include <utility>

namespace sluice {

void StepCurves::Add(const StepLoss& loss) {
  const auto step = open_.try_emplace(loss.step()).first;
  Open& open = step->second;
  open.loss_sum += loss.loss();
  ++open.ranks;
  if (loss.examples_per_second() > 0) {
    open.speed += loss.examples_per_second();
    ++open.with_speed;
  }
  if (open.ranks >= worker_num_) {
    Close(step);
  } else if (open_.size() > kOpenSteps) {
    Close(open_.begin());
  }
}

std::vector<Scalar> StepCurves::Take(bool all) {
  while (all && !open_.empty()) Close(open_.begin());
  return std::exchange(points_, {});
}

void StepCurves::Close(OpenSteps::iterator step) {
  const Open& open = step->second;
  points_.push_back({"train/loss", step->first, open.loss_sum / open.ranks});
  if (open.with_speed == worker_num_)
    points_.push_back({"train/examples_per_second", step->first, open.speed});
  open_.erase(step);
}

}  // namespace sluice
