// Curves with a bounded number of points, however long a job runs.
//
// A curve that is full drops its points that stand closer than twice the distance of before, and
// later ones must have that distance. So the points stay spread evenly over the steps. The newest
// point is always there. A step that is trained again, after a rollback, replaces its point.
//
// Memory: 16 bytes a point.
//
// Thread safety: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "scheduler/job/output_action.h"

namespace sluice {

// One curve: values by ascending step, or by epoch.
class ThinCurve {
 public:
  struct Point {
    uint64_t x = 0;
    double y = 0;
  };
  // REQUIRES: most >= 4.
  explicit ThinCurve(size_t most) : most_(most) {}
  void Add(uint64_t x, double y);
  // From now on the curve has at most this many points. REQUIRES: most >= 4.
  void Reduce(size_t most);
  const std::vector<Point>& points() const { return points_; }

 private:
  void Thin();

  size_t most_;
  uint64_t gap_ = 1;  // between two points, but for the newest
  std::vector<Point> points_;
};

// The curves of a job by tag, as in the event file.
class ThinCurves {
 public:
  static constexpr size_t kMostPoints = 2000;  // of a curve
  static constexpr size_t kMostCurves = 48;    // points of further ones are left out

  void Add(const std::vector<Scalar>& points);
  // From now on each curve has at most this many points. REQUIRES: most >= 4.
  void Reduce(size_t most);
  size_t point_count() const;
  const std::map<std::string, ThinCurve>& by_tag() const { return curves_; }

 private:
  size_t most_ = kMostPoints;
  std::map<std::string, ThinCurve> curves_;
};

}  // namespace sluice
