// Describes the checkpoint that an attempt of a job begins at, and each rank's share of it.
//
// It is read from disk (starting_point.h), made from the newest checkpoint of a running job
// (CheckpointLifecycle), or taken from the record of a run (job_records.h).
//
// Thread safety: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "proto/model.pb.h"
#include "proto/scheduler.pb.h"

namespace sluice {

struct ResumePoint {
  std::string dir;                 // folder of the checkpoint
  Manifest manifest;               // with the state
  absl::Duration age;              // never below 0
  std::string initial_checkpoint;  // of the saved job: what it started from; empty: nothing
  // Async: examples whose updates some shards have and others lack. They are trained again.
  uint64_t examples_replayed = 0;
  std::vector<std::string> damaged;  // save_ids of newer checkpoints that were passed over

  const CheckpointState& state() const { return manifest.checkpoint(); }
};

// Async and Geo: training steps per worker until the checkpoint, in all epochs.
uint64_t MeanSteps(const CheckpointState& state);

// Async and Geo: turns the steps that all ranks together have made in an epoch into the mean number
// of steps of a rank in the whole job. It counts on from the checkpoint that the job continues
// from, which may be of another number of ranks.
class StepCount {
 public:
  StepCount() = default;
  // `from`: that checkpoint; null: there is none. `before`: the steps of all ranks before the epoch
  // (JobResult.global_step).
  StepCount(const CheckpointState* from, uint64_t before, uint32_t worker_num);
  uint64_t At(uint64_t steps_of_epoch) const;

 private:
  uint64_t base_ = 0;           // the mean at the checkpoint
  uint64_t base_of_all_ = 0;    // the steps of all ranks then
  uint64_t before_of_all_ = 0;  // and before the epoch
  uint32_t worker_num_ = 1;
};

// The state of each of `worker_num` ranks. With another number of ranks than before, rank 0 gets
// the sums of all reports, and Geo's local optimizer state is left out: it belongs to the ranks'
// own shares of the work.
std::vector<WorkerState> StatesOfRanks(const CheckpointState& state, uint32_t worker_num);

// True when one of the instances (JobSpec.instance) has made this checkpoint. Only the names of its
// files are used.
bool IsOfInstances(const Manifest& manifest, const std::vector<uint64_t>& instances);

}  // namespace sluice
