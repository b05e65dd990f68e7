// Recovers the dense tables of a job after the loss of a rank that keeps them: brings this rank to
// the step at which all ranks continue.
//
// The ranks first tell each other where they stand, and all decide the same (group_agreement.h).
// Then a rank without tables gets them from another rank. The mean gradients of the open step go to
// every rank, if one has them. Both travel in broadcasts, in which all ranks take part; a rank that
// has the same bytes already drops what arrives.
//
// Invariants: a rank that has received only part of the tables does not hold them.
//
// Memory: one piece of the bytes that the rank drops.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/collective/collective.h"
#include "proto/scheduler.pb.h"
#include "worker/dense/group_agreement.h"
#include "worker/dense/open_step.h"
#include "worker/dense/rank_meetings.h"

namespace sluice {

class DenseRecovery {
 public:
  // `holds`: the replica of `step`, which outlives this, has the tables.
  DenseRecovery(OpenStep* step, uint32_t rank, uint32_t ranks, bool holds)
      : step_(step), rank_(rank), ranks_(ranks), holds_(holds) {}

  // The number of steps that an earlier life of this rank is known to have committed; 0: unknown.
  void set_committed(uint64_t steps) { committed_ = steps; }
  // See RankMeetings.
  ClosedStep* newest() { return &newest_; }

  // Agrees with the other ranks where all continue, and brings this rank there. `closed`: global
  // steps that have closed, as far as the scheduler knows. ABORTED: the ranks cannot continue where
  // they are. Other errors are those of the collective; then the ranks may agree in a next group.
  absl::Status Agree(Collective& collective, uint64_t closed);
  // To be called when the ranks do not meet, and the scheduler knows that `steps` steps have
  // closed. Returns true if the last of them was open here and has now been applied.
  bool CloseAsTold(uint64_t steps);
  // Adds to a report what this rank knows of the steps that have closed.
  void AddStanding(RankGroupReport* report) const;

 private:
  absl::StatusOr<Agreement> Compare(Collective& collective, uint64_t closed);
  absl::Status TakeTables(Collective& collective, const Agreement& agreement);
  absl::Status TakeMeans(Collective& collective, const Agreement& agreement);
  absl::Status TakeNewest(Collective& collective, uint32_t from);

  OpenStep* const step_;
  const uint32_t rank_, ranks_;
  bool holds_;
  uint64_t committed_ = 0;
  ClosedStep newest_;
};

}  // namespace sluice
