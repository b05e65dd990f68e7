// The worker's Prometheus metrics, set from its progress.
//
// Thread safety: Set from one thread at a time.
#pragma once

#include <memory>

#include "proto/scheduler.pb.h"

namespace prometheus {
class Registry;
}

namespace sluice {

class WorkerMetrics {
 public:
  WorkerMetrics();
  ~WorkerMetrics();
  std::shared_ptr<prometheus::Registry> registry() const;
  // Of the job it runs; all zero when idle.
  void Set(const WorkerProgress& progress);

 private:
  struct Gauges;
  const std::unique_ptr<Gauges> gauges_;
};

}  // namespace sluice
