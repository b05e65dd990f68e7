// Trains one epoch. Hides everything on the worker that differs between sync, async and Geo.
//
// A trainer lives as long as the rank's run of the job, since Geo keeps its parameters in it.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "worker/batches/batch_queue.h"
#include "worker/context/job_context.h"

namespace sluice {

struct EpochPlan {
  uint32_t epoch = 0;
  uint64_t first_step = 0;  // sync: global step of the first batch
  uint64_t steps_done = 0;  // sync: steps of the epoch before that one
  // Sync: an earlier life of this rank has committed this step (from 1), which is the one before
  // the first batch. 0: no. See Phase.commit_again.
  uint64_t commit_again = 0;
  // Async and Geo: called when the pservers have every update from the batches of this task.
  std::function<void(uint64_t task_id, uint64_t examples)> task_trained;
};

// Where the local optimizer of a resumed Geo rank starts.
struct GeoRestore {
  std::string directory;          // of the checkpoint
  std::optional<SavedFile> file;  // of the same rank; absent: there is none
  uint64_t step = 0;              // of the schedule, without a file
};

class Trainer {
 public:
  static std::unique_ptr<Trainer> Create(const JobContext& context);
  virtual ~Trainer() = default;
  // Trains all batches of the queue, unless training ends early (JobContext::end). On return all
  // pushes are acknowledged (sync: applied; Geo: flushed).
  virtual absl::Status Train(const EpochPlan& plan, BatchQueue* queue) = 0;
  // Called after the last Train of an epoch.
  virtual absl::Status EndEpoch(uint32_t epoch) = 0;
  // Geo: takes the local optimizer state from `file` of a checkpoint, or without a file starts it
  // afresh at this step of the schedule. To be called before the first Train.
  virtual absl::Status Restore(const GeoRestore& restore) { return absl::OkStatus(); }
  // Async and Geo: makes this rank's part of the checkpoint that it is asked for, if there is one.
  // To be called only between an EndEpoch and the next Train. In Geo the rank is parked then.
  virtual void AnswerCheckpoint() {}
};

}  // namespace sluice
