// Decides when a checkpoint of a job is due: by time, by steps, or at the end of an epoch.
//
// Sync asks ahead for a step that training has not reached (NextDueStep), so that the checkpoint is
// made exactly after it. Async and Geo ask once a multiple of every_steps has passed (DueBySteps),
// and at the end of an epoch (DueAfterEpoch).
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

  // The steps of an epoch and of the whole job, once they are known; 0: not yet.
  void SetSteps(uint64_t per_epoch, uint64_t last_step);
  // Notes that `step` global steps are done, and that training stops at `limit` before it
  // continues; limit == step: it does not train now. A step that is not newer changes only the
  // limit.
  void NoteStep(uint64_t step, uint64_t limit, absl::Time now);
  // The job's next run begins after `first_step` global steps. The interval every_s continues.
  void Restart(uint64_t first_step, absl::Time now);

  // The interval every_s begins at `from`: the end of the checkpoint before, or the beginning of
  // the job.
  void BeginInterval(absl::Time from) { interval_from_ = from; }
  // A loss has ended a checkpoint, which pservers may still be writing until `writers_stop_at`.
  // None is due by time before then, or before an interval has passed if that is sooner. A loss
  // does not begin the interval again, or a job that often loses members would make no checkpoint.
  void NoteLoss(absl::Time writers_stop_at, absl::Time now);
  // A checkpoint is asked for now. DueBySteps counts from the present step on.
  void NoteAsked() { asked_from_ = step_; }

  // True when some rule asks for checkpoints.
  bool has_rules() const;
  bool DueByTime(absl::Time now) const;
  // A multiple of every_steps was passed since a checkpoint was last asked for.
  bool DueBySteps() const;
  // At the end of `epoch` (from 0).
  bool DueAfterEpoch(uint32_t epoch) const;
  // The next step after those done by now at which a checkpoint is due by steps or epochs; 0: none.
  uint64_t NextDueStep(absl::Time now) const;

  uint64_t step() const { return step_; }
  uint64_t limit() const { return limit_; }
  // These are false while the last step is not known.
  bool all_steps_done() const { return last_step_ > 0 && step_ >= last_step_; }
  bool IsLast(uint64_t step) const { return last_step_ > 0 && step == last_step_; }
  bool IsBeyondLast(uint64_t step) const { return last_step_ > 0 && step > last_step_; }

 private:
  // The steps that training will have done when a member learns of a request made now.
  uint64_t EstimatedStep(absl::Time now) const;

  const CheckpointConfig config_;
  uint64_t steps_per_epoch_ = 0, last_step_ = 0;
  // How far training is: steps at a time, the rate since the sample before, and where it stops.
  uint64_t step_, limit_;
  absl::Time step_at_;
  double steps_per_s_ = 0;
  uint64_t asked_from_;  // the step when a checkpoint was last asked for
  absl::Time interval_from_;
  absl::Time by_time_from_ = absl::InfinitePast();  // none is due by time before
};

}  // namespace sluice
