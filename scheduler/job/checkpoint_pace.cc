#include "scheduler/job/checkpoint_pace.h"

#include <algorithm>
#include <utility>

namespace sluice {

CheckpointPace::CheckpointPace(CheckpointConfig config, uint64_t first_step, absl::Time now)
    : config_(std::move(config)), step_(first_step), asked_from_(first_step), interval_from_(now) {}

void CheckpointPace::NoteStep(uint64_t step) { step_ = std::max(step_, step); }

void CheckpointPace::Restart(uint64_t first_step) { step_ = asked_from_ = first_step; }

void CheckpointPace::NoteLoss(absl::Time writers_stop_at, absl::Time now) {
  by_time_from_ = std::min(writers_stop_at, now + absl::Seconds(config_.every_s()));
}

bool CheckpointPace::has_rules() const {
  return config_.every_s() > 0 || config_.every_steps() > 0 || config_.every_epochs() > 0;
}

bool CheckpointPace::DueByTime(absl::Time now) const {
  const absl::Duration every = absl::Seconds(config_.every_s());
  return every > absl::ZeroDuration() && now - interval_from_ >= every && now >= by_time_from_;
}

bool CheckpointPace::DueBySteps() const {
  const uint64_t every = config_.every_steps();
  return every > 0 && step_ / every > asked_from_ / every;
}

bool CheckpointPace::DueAfterEpoch(uint32_t epoch, bool last) const {
  if (last && config_.at_end()) return true;
  const uint32_t every = config_.every_epochs();
  return every > 0 && (epoch + 1) % every == 0;
}

}  // namespace sluice
