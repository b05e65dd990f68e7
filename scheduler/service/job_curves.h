// Keeps the curves of jobs in memory for the dashboard: a bounded number of points, however long a
// job runs.
//
// Memory: 16 bytes a point; at most those of ThinCurves in a job, and kMostPointsOfAll in all. A
// job that has ended keeps kPointsOfEnded in a curve. Beyond the bound of all, the oldest jobs are
// forgotten, those that have ended first.
//
// Thread safety: safe.
#pragma once

#include <cstddef>
#include <list>
#include <map>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "scheduler/job/output_action.h"
#include "scheduler/job/thin_curve.h"

namespace sluice {

class JobCurves {
 public:
  static constexpr size_t kPointsOfEnded = 500;
  static constexpr size_t kMostPointsOfAll = 2'000'000;

  explicit JobCurves(size_t most_points_of_all = kMostPointsOfAll)
      : most_points_of_all_(most_points_of_all) {}
  void Add(const std::string& job_id, const std::vector<Scalar>& points);
  // The job continues these curves, which an earlier scheduler or run has left. Points that were
  // added meanwhile stay.
  void Continue(const std::string& job_id, const ThinCurves& earlier);
  // The job has ended.
  void End(const std::string& job_id);
  // Returns the curves with at most `most` points each; none of an unknown job.
  // REQUIRES: most >= 4.
  ThinCurves Of(const std::string& job_id, size_t most) const;

 private:
  struct JobOf {
    std::string job_id;
    ThinCurves curves;
    size_t points = 0;
    bool ended = false;
  };
  JobOf* ById(const std::string& job_id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Count(JobOf* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const size_t most_points_of_all_;
  mutable Mutex mutex_;
  std::list<JobOf> jobs_ ABSL_GUARDED_BY(mutex_);  // the oldest first
  std::map<std::string, std::list<JobOf>::iterator> by_id_ ABSL_GUARDED_BY(mutex_);
  size_t points_ ABSL_GUARDED_BY(mutex_) = 0;  // of all jobs
};

}  // namespace sluice
