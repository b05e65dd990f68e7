// The Prometheus metrics of jobs that are not over: progress, evaluation, checkpoints and losses.
//
// Thread safety: safe from any thread.
#pragma once

#include <memory>

#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace prometheus {
class Registry;
}

namespace sluice {

class JobMetrics {
 public:
  // `registry` outlives this.
  explicit JobMetrics(prometheus::Registry* registry);
  ~JobMetrics();
  // Sets the series of the jobs in `status`, and removes the series of all others.
  void Update(const ClusterStatus& status);

 private:
  struct Families;
  Mutex mutex_;
  const std::unique_ptr<Families> families_ ABSL_PT_GUARDED_BY(mutex_);
};

}  // namespace sluice
