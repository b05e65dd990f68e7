#include "server/requests/step_barrier.h"

namespace sluice {

StepBarrier::StepBarrier(const std::vector<bool>& active, uint64_t closed)
    : ranks_(active.size()), closed_(closed) {
  for (size_t r = 0; r < active.size(); ++r) {
    ranks_[r].active = active[r];
    if (active[r]) ++active_;
  }
  missing_ = active_;
}

StepBarrier::Outcome StepBarrier::Commit(uint32_t rank, uint64_t step, absl::Time now) {
  // A commit is resent when its answer was lost, perhaps after its step has closed.
  if (step <= closed_) return Outcome::kDuplicate;
  if (step != closed_ + 1) return Outcome::kAhead;
  Rank& self = ranks_[rank];
  if (self.committed) return Outcome::kDuplicate;
  self.committed = true;
  if (missing_ == active_) first_commit_ = now;
  if (--missing_ > 0) {
    previous_commit_ = now;
    return Outcome::kWaiting;
  }
  // The last rank alone is charged, and only for the time since the commit before its own: until
  // then the step also waited for others.
  if (active_ > 1) self.waited_for += now - previous_commit_;
  return Outcome::kClose;
}

void StepBarrier::Closed() {
  ++closed_;
  missing_ = active_;
  for (Rank& r : ranks_) r.committed = false;
}

uint32_t StepBarrier::first_missing() const {
  uint32_t r = 0;
  while (r < ranks_.size() && (!ranks_[r].active || ranks_[r].committed)) ++r;
  return r;
}

uint32_t StepBarrier::slowest_rank() const {
  uint32_t slowest = 0;
  for (uint32_t r = 1; r < ranks_.size(); ++r) {
    if (ranks_[r].waited_for > ranks_[slowest].waited_for) slowest = r;
  }
  return slowest;
}

}  // namespace sluice
