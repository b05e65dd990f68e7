#include "scheduler/job/thin_curve.h"

#include <algorithm>
#include <utility>

namespace sluice {

void ThinCurve::Add(uint64_t x, double y) {
  const auto at =
      std::lower_bound(points_.begin(), points_.end(), x,
                       [](const Point& point, uint64_t wanted) { return point.x < wanted; });
  if (at != points_.end()) {
    // Late or again. A point between two others is left out unless both are far enough.
    if (at->x == x) {
      at->y = y;
    } else if (at->x - x >= gap_ && (at == points_.begin() || x - (at - 1)->x >= gap_)) {
      points_.insert(at, {x, y});
    }
  } else if (points_.size() >= 2 && points_.back().x - points_[points_.size() - 2].x < gap_) {
    points_.back() = {x, y};
  } else {
    points_.push_back({x, y});
  }
  if (points_.size() > most_) Thin();
}

void ThinCurve::Reduce(size_t most) {
  most_ = most;
  if (points_.size() > most_) Thin();
  points_.shrink_to_fit();
}

void ThinCurve::Thin() {
  const Point newest = points_.back();
  // Half of the bound, so that a curve is not thinned at each of its points.
  gap_ = std::max(gap_ + 1, (newest.x - points_.front().x) / (most_ / 2) + 1);
  std::vector<Point> kept;
  for (const Point& point : points_) {
    if (kept.empty() || point.x - kept.back().x >= gap_) kept.push_back(point);
  }
  if (kept.back().x != newest.x) kept.push_back(newest);
  points_ = std::move(kept);
}

void ThinCurves::Add(const std::vector<Scalar>& points) {
  for (const Scalar& point : points) {
    auto curve = curves_.find(point.tag);
    if (curve == curves_.end()) {
      if (curves_.size() >= kMostCurves) continue;
      curve = curves_.emplace(point.tag, ThinCurve(most_)).first;
    }
    curve->second.Add(point.step, point.value);
  }
}

void ThinCurves::Reduce(size_t most) {
  most_ = most;
  for (auto& [tag, curve] : curves_) curve.Reduce(most);
}

size_t ThinCurves::point_count() const {
  size_t count = 0;
  for (const auto& [tag, curve] : curves_) count += curve.points().size();
  return count;
}

}  // namespace sluice
