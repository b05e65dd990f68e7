// Whether training ends before the last epoch is over, because a program has left its loop: as the
// scheduler says in the rank's assignment (WorkerAssignment.early_end).
//
// Sync: after `last_step` global steps. No step after it closes, so a rank that has pushed one
// drops it. Async: after the step that a rank is in.
//
// Thread safety: safe from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "proto/scheduler.pb.h"

namespace sluice {

class TrainingEnd {
 public:
  // A later call counts if it names an earlier step.
  void Set(const EarlyEnd& end) {
    uint64_t last = last_step_.load();
    while (end.last_step() < last && !last_step_.compare_exchange_weak(last, end.last_step())) {
    }
    // After the step: whoever sees the flag sees the step.
    known_ = true;
  }
  // Training ends early. To be looked at by waits.
  const std::atomic<bool>& known() const { return known_; }
  uint64_t last_step() const { return last_step_; }
  // Sync: no step follows the first `steps` ones. Async, where the last step is 0: no other step
  // follows.
  bool Ends(uint64_t steps) const { return known_ && steps >= last_step_; }
  // Sync: the global step (counted from 1) `step` never closes.
  bool NeverCloses(uint64_t step) const { return known_ && step > last_step_; }

 private:
  std::atomic<uint64_t> last_step_{UINT64_MAX};
  std::atomic<bool> known_{false};
};

}  // namespace sluice
