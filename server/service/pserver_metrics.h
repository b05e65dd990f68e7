// Copies the state of a pserver and of its jobs into Prometheus metrics.
//
// Thread safety: safe from any thread.
#pragma once

#include <memory>
#include <vector>

#include "common/base/mutex.h"
#include "proto/scheduler.pb.h"
#include "server/service/exchange_handler.h"

namespace prometheus {
class Registry;
}

namespace sluice {

class PserverMetrics {
 public:
  PserverMetrics();
  ~PserverMetrics();

  const std::shared_ptr<prometheus::Registry>& registry() const { return registry_; }
  // Sets every metric; series of jobs that are gone disappear.
  void Update(const std::vector<HostedJob>& jobs, const DataPlaneCounters& counters,
              const StreamCounts& streams, uint64_t memory_bytes, double cpu_seconds = 0);

 private:
  struct Families;
  const std::shared_ptr<prometheus::Registry> registry_;
  Mutex mutex_;
  std::unique_ptr<Families> families_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace sluice
