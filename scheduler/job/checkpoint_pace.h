// Decides when a checkpoint of a job is due by time, by steps, or at the end of an epoch.
//
// Sync: rank 0 finds the multiples of every_steps by itself (WorkerCheckpoint.every_steps), so
// DueBySteps is for async and Geo alone. They ask once a multiple has passed.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/time/time.h"
#include "proto/config.pb.h"

namespace sluice {

class CheckpointPace {
 public:
  // A job begins after `first_step` global steps. `config` is effective.
  CheckpointPace(CheckpointConfig config, uint64_t first_step, absl::Time now);

  // Notes that `step` global steps are done. One that is not newer changes nothing.
  void NoteStep(uint64_t step);
  // The job's next run begins after `first_step` global steps. The interval every_s continues.
  void Restart(uint64_t first_step);

  // The interval every_s begins at `from`: the end of the checkpoint before, or the beginning of
  // the job.
  void BeginInterval(absl::Time from) { interval_from_ = from; }
  // A loss has ended a checkpoint, which pservers may still be writing until `writers_stop_at`.
  // None is due by time before then, or before an interval has passed if that is sooner. A loss
  // does not begin the interval again, or a job that often loses members would make no checkpoint.
  void NoteLoss(absl::Time writers_stop_at, absl::Time now);
  // A checkpoint is asked for now. DueBySteps counts from the present step on.
  void NoteAsked() { asked_from_ = step_; }

  // True when some rule asks for checkpoints before the job's end.
  bool has_rules() const;
  bool DueByTime(absl::Time now) const;
  // A multiple of every_steps was passed since a checkpoint was last asked for.
  bool DueBySteps() const;
  // At the end of `epoch` (from 0); `last`: the job ends with it.
  bool DueAfterEpoch(uint32_t epoch, bool last) const;

  uint64_t step() const { return step_; }

 private:
  const CheckpointConfig config_;
  uint64_t step_;
  uint64_t asked_from_;  // the step when a checkpoint was last asked for
  absl::Time interval_from_;
  absl::Time by_time_from_ = absl::InfinitePast();  // none is due by time before
};

}  // namespace sluice
