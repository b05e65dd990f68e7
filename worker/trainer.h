// Trains one epoch; everything on the worker that differs between the modes is behind this.
//
// A trainer lives as long as the rank's run of the job, since Geo keeps its parameters in it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "worker/batch_queue.h"
#include "worker/job_context.h"

namespace sluice {

struct EpochPlan {
  uint32_t epoch = 0;
  uint64_t first_step = 0;  // sync: global step of the first batch
  uint64_t steps_done = 0;  // sync: steps of the epoch before that one
  // Async and Geo: called when the pservers have every update from the batches of this task.
  std::function<void(uint64_t task_id, uint64_t examples)> task_trained;
};

class Trainer {
 public:
  static std::unique_ptr<Trainer> Create(const JobContext& context);
  virtual ~Trainer() = default;
  // Trains all batches of the queue. On return all pushes are acknowledged (sync: applied; Geo:
  // flushed).
  virtual absl::Status Train(const EpochPlan& plan, BatchQueue* queue) = 0;
  // Called after the last Train of an epoch.
  virtual absl::Status EndEpoch(uint32_t epoch) = 0;
};

}  // namespace sluice
