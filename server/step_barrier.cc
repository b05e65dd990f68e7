#include "server/step_barrier.h"

namespace sluice {

StepBarrier::Outcome StepBarrier::Commit(uint32_t rank, uint64_t step, absl::Time now) {
  if (step <= closed_) return Outcome::kDuplicate;
  if (step != closed_ + 1) return Outcome::kAhead;
  Rank& self = ranks_[rank];
  if (self.committed) return Outcome::kDuplicate;
  self.committed = true;
  if (missing_ == ranks_.size()) first_commit_ = now;
  if (--missing_ > 0) {
    previous_commit_ = now;
    return Outcome::kWaiting;
  }
  if (ranks_.size() > 1) self.waited_for += now - previous_commit_;
  return Outcome::kClose;
}

void StepBarrier::Closed() {
  ++closed_;
  missing_ = static_cast<uint32_t>(ranks_.size());
  for (Rank& r : ranks_) r.committed = false;
}

uint32_t StepBarrier::slowest_rank() const {
  uint32_t slowest = 0;
  for (uint32_t r = 1; r < ranks_.size(); ++r) {
    if (ranks_[r].waited_for > ranks_[slowest].waited_for) slowest = r;
  }
  return slowest;
}

}  // namespace sluice
