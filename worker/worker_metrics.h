// The worker's Prometheus metrics, set from its progress.
//
// Thread safety: safe.
#pragma once

#include <cstdint>
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
  // `progress` of the job it runs, all zero when idle; `examples` trained in the life of the
  // process.
  void Set(const WorkerProgress& progress, uint64_t examples);

 private:
  struct Gauges;
  const std::unique_ptr<Gauges> gauges_;
};

}  // namespace sluice
