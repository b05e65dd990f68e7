#include "scheduler/service/job_curves.h"

#include <algorithm>
#include <utility>

namespace sluice {

JobCurves::JobOf* JobCurves::ById(const std::string& job_id) {
  const auto known = by_id_.find(job_id);
  if (known != by_id_.end()) return &*known->second;
  jobs_.push_back({job_id, {}, 0, false});
  by_id_[job_id] = std::prev(jobs_.end());
  return &jobs_.back();
}

void JobCurves::Add(const std::string& job_id, const std::vector<Scalar>& points) {
  MutexLock lock(&mutex_);
  JobOf* const job = ById(job_id);
  job->curves.Add(points);
  Count(job);
}

void JobCurves::Continue(const std::string& job_id, const ThinCurves& earlier) {
  MutexLock lock(&mutex_);
  JobOf* const job = ById(job_id);
  ThinCurves all = earlier;
  for (const auto& [tag, curve] : job->curves.by_tag()) {
    std::vector<Scalar> newer;
    for (const ThinCurve::Point& point : curve.points()) newer.push_back({tag, point.x, point.y});
    all.Add(newer);
  }
  job->curves = std::move(all);
  if (job->ended) job->curves.Reduce(kPointsOfEnded);
  Count(job);
}

void JobCurves::End(const std::string& job_id) {
  MutexLock lock(&mutex_);
  const auto job = by_id_.find(job_id);
  if (job == by_id_.end()) return;
  job->second->ended = true;
  job->second->curves.Reduce(kPointsOfEnded);
  Count(&*job->second);
}

void JobCurves::Count(JobOf* job) {
  points_ -= job->points;
  job->points = job->curves.point_count();
  points_ += job->points;
  while (points_ > most_points_of_all_ && jobs_.size() > 1) {
    auto oldest =
        std::find_if(jobs_.begin(), jobs_.end(), [](const JobOf& one) { return one.ended; });
    if (oldest == jobs_.end()) oldest = jobs_.begin();
    points_ -= oldest->points;
    by_id_.erase(oldest->job_id);
    jobs_.erase(oldest);
  }
}

ThinCurves JobCurves::Of(const std::string& job_id, size_t most) const {
  MutexLock lock(&mutex_);
  const auto job = by_id_.find(job_id);
  if (job == by_id_.end()) return {};
  ThinCurves curves = job->second->curves;
  curves.Reduce(most);
  return curves;
}

}  // namespace sluice
