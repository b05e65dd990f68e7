// The Prometheus metrics of the checkpoints and losses of jobs that are not over.
//
// Thread safety: safe from any thread.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"

namespace prometheus {
class Registry;
}

namespace sluice {

class CheckpointMetrics {
 public:
  // `registry` outlives this.
  explicit CheckpointMetrics(prometheus::Registry* registry) : registry_(*registry) {}
  // Sets the series of the jobs in `status`, and removes the series of all others.
  void Update(const ClusterStatus& status);

 private:
  void SetRecovery(const std::string& job, const Recovery& recovery)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Set(const std::string& job, const std::string& name, const std::string& help, double value)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  prometheus::Registry& registry_;
  Mutex mutex_;
  struct Entry {
    std::function<void()> remove;
    bool set = false;
  };
  std::map<std::pair<std::string, std::string>, Entry> entries_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
