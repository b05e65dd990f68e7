// Bounded staleness (SSP): decides how far a worker may run ahead of the slowest one, and measures
// the staleness that occurred.
//
// A rank's clock is the number of its steps applied here, moved up to the slowest active rank
// whenever it becomes active again. A rank is active from its first pull or push of training until
// it is set idle.
//
// Source: Ho et al. 2013, More Effective Distributed ML via a Stale Synchronous Parallel Parameter
// Server.
//
// Thread safety: guarded by the owner's lock.
//
// Pure: no clock, no I/O.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace sluice {

class StalenessClock {
 public:
  StalenessClock(uint32_t ranks, std::optional<uint64_t> max_staleness)
      : ranks_(ranks), max_staleness_(max_staleness) {}

  // A pull or push of training came from `rank`.
  void Activate(uint32_t rank);
  // The rank has stopped training for now, so nobody waits for it.
  void SetIdle(uint32_t rank) { ranks_[rank].active = false; }
  // A frame of `rank` was applied. `pulled_others`: others() when the values behind it were read.
  void Applied(uint32_t rank, uint64_t pulled_others);

  // Returns the step (from 0), on the rank's clock, that a pull for push `for_push` is for; 0: for
  // the next push. `applied` is the rank's last push applied here. The result is the same when the
  // pull is sent again, and does not depend on how far the rank's own frames have moved its clock.
  uint64_t StepOf(uint32_t rank, uint64_t for_push, uint64_t applied) const;
  // True when `rank` may read the values for `step`: every other active rank has applied step -
  // max_staleness steps. A max_staleness of 0 is lock-step.
  bool Ready(uint32_t rank, uint64_t step) const { return !Blocking(rank, step).has_value(); }
  // Returns the slowest rank that keeps `rank` from being ready.
  std::optional<uint32_t> Blocking(uint32_t rank, uint64_t step) const;

  bool active(uint32_t rank) const { return ranks_[rank].active; }
  uint64_t clock(uint32_t rank) const { return ranks_[rank].clock; }
  // Frames of ranks other than `rank` applied so far.
  uint64_t others(uint32_t rank) const { return frames_ - ranks_[rank].frames; }
  uint64_t frames() const { return frames_; }

  // Sum and maximum over all applied frames.
  uint64_t staleness_sum() const { return sum_; }
  uint64_t staleness_max() const { return max_; }

 private:
  struct Rank {
    bool active = false;
    uint64_t clock = 0;
    uint64_t frames = 0;
  };
  std::vector<Rank> ranks_;
  const std::optional<uint64_t> max_staleness_;
  uint64_t frames_ = 0, sum_ = 0, max_ = 0;
};

}  // namespace sluice
