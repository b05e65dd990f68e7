#include "scheduler/members/pause_detector.h"

#include <algorithm>

namespace sluice {

PauseDetector::PauseDetector(absl::Duration lease, absl::Time now)
    // The limit must exceed the delays of a busy machine (tenths of a second), and be shorter than
    // a lease: after a gap that long, members would already have been declared dead.
    : longest_gap_(std::clamp(lease / 2, absl::Milliseconds(300), absl::Seconds(1))),
      ticked_at_(now) {}

bool PauseDetector::HasPaused(absl::Time now) {
  if (now - ticked_at_ < longest_gap_) return false;
  resumed_at_ = now;
  return true;
}

absl::Duration PauseDetector::Since(absl::Time begin, absl::Time now) const {
  return now - std::max(begin, resumed_at_);
}

}  // namespace sluice
