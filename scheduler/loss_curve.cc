#include "scheduler/loss_curve.h"

namespace sluice {

void LossCurve::Add(const StepLoss& loss) {
  Open& open = open_[loss.step()];
  open.sum += loss.loss();
  ++open.ranks;
}

std::vector<Scalar> LossCurve::Take(bool all) {
  std::vector<Scalar> points;
  for (auto it = open_.begin(); it != open_.end();) {
    if (!all && it->second.ranks < worker_num_ && open_.size() <= kOpenSteps) {
      ++it;
      continue;
    }
    points.push_back({"train/loss", it->first, it->second.sum / it->second.ranks});
    it = open_.erase(it);
  }
  return points;
}

}  // namespace sluice
