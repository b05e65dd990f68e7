#include "scheduler/rank_slot.h"

#include <algorithm>

namespace sluice {

void RankSlot::Withdraw(uint64_t version) {
  state_ = State::kWithdrawn;
  withdrawn_version_ = version;
}

void RankSlot::SeenRunning() {
  has_run_ = true;
  idle_since_ = absl::InfiniteFuture();
}

absl::Time RankSlot::SeenIdle(uint64_t seen_version, absl::Time now) {
  // The member had not yet seen the assignment when it made this report.
  if (seen_version < told_version_) return absl::InfiniteFuture();
  idle_since_ = std::min(idle_since_, now);
  return idle_since_;
}

bool RankSlot::ConfirmsStop(uint64_t seen_version) const {
  return state_ == State::kWithdrawn && seen_version >= withdrawn_version_;
}

}  // namespace sluice
