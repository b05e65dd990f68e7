#include "scheduler/job/checkpoint_pace.h"

#include <algorithm>
#include <utility>

namespace sluice {
namespace {

// Time that rank 0 needs to learn of a step that is asked for. A step that would be reached sooner
// is left out, since the checkpoint would then be made after another step.
constexpr absl::Duration kNotice = absl::Milliseconds(300);

}  // namespace

CheckpointPace::CheckpointPace(CheckpointConfig config, uint64_t first_step, absl::Time now)
    : config_(std::move(config)),
      step_(first_step),
      limit_(first_step),
      step_at_(now),
      asked_from_(first_step),
      interval_from_(now) {}

void CheckpointPace::SetSteps(uint64_t per_epoch, uint64_t last_step) {
  steps_per_epoch_ = per_epoch;
  last_step_ = last_step;
}

void CheckpointPace::NoteStep(uint64_t step, uint64_t limit, absl::Time now) {
  const uint64_t before = limit_;
  limit_ = std::max(step, limit);
  // Another phase: the time in which nothing was trained says nothing about the speed.
  if (limit_ != before && step <= step_) step_at_ = now;
  if (step <= step_) return;
  const double passed = absl::ToDoubleSeconds(now - step_at_);
  if (passed > 0) steps_per_s_ = static_cast<double>(step - step_) / passed;
  step_ = step;
  step_at_ = now;
}

void CheckpointPace::Restart(uint64_t first_step, absl::Time now) {
  step_ = limit_ = asked_from_ = first_step;
  steps_per_s_ = 0;
  step_at_ = now;
}

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

bool CheckpointPace::DueAfterEpoch(uint32_t epoch) const {
  const uint32_t every = config_.every_epochs();
  return every > 0 && (epoch + 1) % every == 0;
}

uint64_t CheckpointPace::EstimatedStep(absl::Time now) const {
  const double since = absl::ToDoubleSeconds(now - step_at_ + kNotice);
  const double more = std::min(steps_per_s_ * since, static_cast<double>(limit_ - step_));
  return step_ + static_cast<uint64_t>(std::max(more, 0.0));
}

uint64_t CheckpointPace::NextDueStep(absl::Time now) const {
  const uint64_t done = EstimatedStep(now);
  uint64_t due = 0;
  const auto add = [&](uint64_t step) {
    if (due == 0 || step < due) due = step;
  };
  const auto add_multiples_of = [&](uint64_t interval) {
    if (interval == 0) return;
    const uint64_t next = (done / interval + 1) * interval;
    if (last_step_ == 0 || next <= last_step_) add(next);
    // No step follows the last one, so it may be asked for too late.
    if (last_step_ > step_ && last_step_ % interval == 0) add(last_step_);
  };
  add_multiples_of(config_.every_steps());
  add_multiples_of(config_.every_epochs() * steps_per_epoch_);
  return due;
}

}  // namespace sluice
