// Runs the second phase of a sync step: counts the commits of the open step, and records which rank
// came last.
//
// Steps are numbered from 1, as the sequence numbers on the wire. Step s = closed() + 1 is open; it
// closes exactly once, when every active rank has committed it.
//
// Thread safety: guarded by the owner's lock.
//
// Pure: `now` is an argument.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace sluice {

class StepBarrier {
 public:
  enum class Outcome {
    kWaiting,    // others are missing
    kClose,      // this was the last one: the caller applies the step, then calls Closed
    kDuplicate,  // committed before, or closed
    kAhead,      // not the open step
  };
  // active[rank]: the step waits for this rank. Steps up to `closed` are closed.
  explicit StepBarrier(const std::vector<bool>& active, uint64_t closed = 0);

  // REQUIRES: the rank is active.
  Outcome Commit(uint32_t rank, uint64_t step, absl::Time now);
  // Call when every shard here has applied the open step. Opens the next one.
  void Closed();

  uint64_t closed() const { return closed_; }
  // Number of active ranks that have not committed the open step, and the first of them.
  uint32_t missing() const { return missing_; }
  uint32_t first_missing() const;
  // True when some active ranks have committed the open step and others have not.
  bool waiting() const { return missing_ > 0 && missing_ < active_; }
  // Time of the first commit of the open step.
  // REQUIRES: waiting().
  absl::Time first_commit() const { return first_commit_; }

  // The rank that came last with the longest total wait, and that total. With one rank: 0, 0.
  uint32_t slowest_rank() const;
  absl::Duration slowest_wait() const { return ranks_[slowest_rank()].waited_for; }

 private:
  struct Rank {
    bool active = true;
    bool committed = false;
    absl::Duration waited_for;
  };
  std::vector<Rank> ranks_;
  uint32_t active_ = 0;
  uint64_t closed_;
  uint32_t missing_ = 0;
  absl::Time first_commit_, previous_commit_;
};

}  // namespace sluice
