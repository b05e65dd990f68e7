// The worker's Prometheus metrics, set from its progress.
//
// Thread safety: safe from any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "common/admin/place_metrics.h"
#include "common/base/mutex.h"
#include "common/places/place_use.h"
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
  // For a CUDA device there are also metrics of the device, while a job runs.
  explicit WorkerMetrics(const ComputeDevice& device);
  ~WorkerMetrics();
  std::shared_ptr<prometheus::Registry> registry() const;
  // `progress` is the progress of the running job, empty when idle; `totals` count since the
  // process began.
  void Set(const WorkerProgress& progress, const WorkerTotals& totals);
  // What was asked of places by their names. A place that was not asked has no figures.
  void SetPlaces(const std::map<std::string, const PlaceUse*>& places);

 private:
  struct OfJob;
  struct OfDevice;
  struct Counters;
  const std::shared_ptr<prometheus::Registry> registry_;  // owns what the others refer to
  const std::unique_ptr<Counters> counters_;              // has its own lock
  PlaceMetrics of_places_;                                // has its own lock
  Mutex mutex_;
  const std::unique_ptr<OfJob> of_job_ ABSL_PT_GUARDED_BY(mutex_);
  std::unique_ptr<OfDevice> of_device_;  // constant after construction; null: the CPU
};

}  // namespace sluice
