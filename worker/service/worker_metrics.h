// The worker's Prometheus metrics, set from its progress.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <memory>

#include "model/net/net_options.h"
#include "proto/scheduler.pb.h"

namespace prometheus {
class Registry;
}

namespace sluice {

struct WorkerTotals {
  uint64_t examples = 0;  // trained
  HotRowUse hot_rows;
  double cpu_seconds = 0;  // of the process
};

class WorkerMetrics {
 public:
  // For a CUDA device there are also metrics of the device.
  explicit WorkerMetrics(const ComputeDevice& device);
  ~WorkerMetrics();
  std::shared_ptr<prometheus::Registry> registry() const;
  // `progress` is the progress of the running job, all zero when idle; `totals` count since the
  // process began.
  void Set(const WorkerProgress& progress, const WorkerTotals& totals);

 private:
  struct Gauges;
  struct Counters;
  struct DeviceGauges;
  const std::unique_ptr<Gauges> gauges_;
  const std::unique_ptr<Counters> counters_;
  std::unique_ptr<DeviceGauges> device_;  // constant after construction; null: the CPU
};

}  // namespace sluice
